// train/rank_generator.cpp: plans, memory, weights.
#include "train/rank_generator.h"

#include "base/error.h"
#include "planning/gpu_memory_check.h"
#include "planning/memory_check.h"
#include "train/weights.h"

namespace weft {
namespace {

GeneratePlans plans_of(const Model& model, GenerateOptions sizes, const Ranks& ranks,
                       const Backend& backend, const ThreadPool& pool) {
  sizes.rank = generate_rank(model, ranks.layout(), ranks.rank());
  return make_generate_plans(model, sizes, *backend.kernels, pool.num_threads());
}

// The ranks of a machine share its memory; a GPU is one rank's.
void check_bytes(int64_t bytes, const Ranks& ranks, const Backend& backend, const std::string& hint,
                 bool is_forced) {
  if (backend.device->is_host()) {
    if (ranks.rank() == 0) check_arena_memory("generation", bytes * ranks.size(), hint, is_forced);
  } else {
    check_gpu_memory("generation", bytes, *backend.device, hint);
  }
}

std::unique_ptr<Arena> make_arena(Ranks* ranks, int64_t bytes, Device* device) {
  void* shared = device->is_host() ? ranks->take_memory(bytes) : nullptr;
  return shared ? std::make_unique<Arena>(shared, bytes) : std::make_unique<Arena>(bytes, device);
}

}  // namespace

GenerateRank generate_rank(const Model& model, const Layout& layout, int rank) {
  if (layout.num_ranks() == 1 && !layout.is_exact) return {};
  return {cuts_of(model), layout.tensor(rank), layout.data(rank, 1)};
}

void check_generate_layout(const Layout& layout) {
  if (layout.dp == 1 || layout.shard == Shard::kZero3) return;
  throw UserError(
      fmt::format("parallel.dp={} with whole weights on every rank: each rank would do the same",
                  layout.dp),
      "set parallel.shard=zero3 to spread the weights over these ranks, or parallel.dp=1");
}

RankGenerator::RankGenerator(const Model& model, const LogicalModel& source, GenerateOptions sizes,
                             Ranks* ranks, const Backend& backend, ThreadPool* pool,
                             const std::string& hint, bool is_forced)
    : plans_(plans_of(model, std::move(sizes), *ranks, backend, *pool)),
      layout_(layout_of(plans_)) {
  check_bytes(layout_.total_bytes(), *ranks, backend, hint, is_forced);
  arena_ = make_arena(ranks, layout_.total_bytes(), backend.device);
  shared_ = std::make_unique<SharedArena>(ranks, backend.device, *backend.kernels, arena_->data(),
                                          arena_->bytes());
  Comm* world = ranks->size() > 1 ? &ranks->world() : nullptr;
  generator_ = std::make_unique<Generator>(model, plans_, layout_, *arena_, pool,
                                           GeneratorRanks{ranks->mesh(), world});
  for (const Executor* executor : generator_->executors())
    Weights(*executor, model, false, pool).load(source);
}

}  // namespace weft
