// train/eval_engine.cpp: one plan, one arena, no states.
#include "train/eval_engine.h"

#include <algorithm>
#include <array>

#include "base/stop.h"
#include "planning/graphs.h"
#include "planning/rank_plans.h"
#include "train/weights.h"

namespace weft {
std::unique_ptr<Arena> make_pass_arena(Ranks* ranks, int64_t bytes, Device* device) {
  const bool is_shared = device->is_host() && has_pass_collectives(ranks->layout());
  void* memory = is_shared ? ranks->take_memory(bytes) : nullptr;
  return memory ? std::make_unique<Arena>(memory, bytes) : std::make_unique<Arena>(bytes, device);
}

std::unique_ptr<LengthPlans> make_eval_lengths(const Plan& plan, const RunConfig& config,
                                               const Model& model, const Layout& layout, int rank,
                                               const LengthPlans::Place& place) {
  const auto trace = [=, &model](const Lengths& lengths) {
    return make_eval_graph(with_lengths(config, lengths), model, layout, rank);
  };
  auto plans = std::make_unique<LengthPlans>(plan, longest_lengths(config, model), trace, place,
                                             Passes{config.micro_batch(), config.num_passes()});
  plans->allow_stop();
  return plans;
}

Mesh mesh_of(const RunConfig& config, const Ranks& ranks) {
  Mesh mesh = ranks.mesh();
  // In fast mode every rank pads to the longest row of its own pass.
  mesh.passes_agree = !mesh.data || config.data.layout != "dynamic" || ranks.layout().is_exact;
  return mesh;
}

// Counts are exchanged together with the loss.
LossSums sum_over_ranks(Ranks& ranks, const ExactSum& loss, const Batch& batch) {
  LossSums sums{loss, batch.target_tokens, batch.tokens, batch.positions};
  std::array<int64_t, kLossNumbers> numbers;
  std::copy_n(sums.loss.limbs(), ExactSum::kLimbs, numbers.begin());
  int64_t* const counts[] = {&sums.target_tokens, &sums.tokens, &sums.positions};
  for (size_t i = 0; i < 3; ++i) numbers[ExactSum::kLimbs + i] = *counts[i];
  ranks.sum_over_data(numbers.data(), kLossNumbers);
  std::copy_n(numbers.begin(), ExactSum::kLimbs, sums.loss.limbs());
  for (size_t i = 0; i < 3; ++i) *counts[i] = numbers[ExactSum::kLimbs + i];
  return sums;
}

std::optional<LossSums> eval_batch(LengthPlans& plans, Ranks& ranks, const Batch& batch,
                                   const LengthPlans::IsStopped& is_stopped) {
  try {
    if (!plans.run(batch, is_stopped)) return std::nullopt;
  } catch (const StopError&) {
    // Midway through a pass: only on this rank, and the others learn it at their next poll; or,
    // where the pass has collectives, on all ranks at once.
  }
  if (is_stopped()) return std::nullopt;
  return sum_over_ranks(ranks, plans.losses(), batch);
}

EvalEngine::EvalEngine(const RunConfig& config, const Model& model, Ranks* ranks,
                       const Backend& backend, ThreadPool* pool)
    : config_(config),
      model_(model),
      ranks_(ranks),
      backend_(backend),
      pool_(pool),
      plan_(make_eval_plan(config, model, ranks->layout(), ranks->rank(), *backend.kernels,
                           pool->num_threads())) {
  layout_.add(plan_);
}

void EvalEngine::load(const LogicalModel& source) {
  const int64_t bytes = layout_.total_bytes();
  arena_ = make_pass_arena(ranks_, bytes, backend_.device);
  shared_ = std::make_unique<SharedArena>(ranks_, backend_.device, *backend_.kernels,
                                          arena_->data(), bytes);
  plans_ = make_eval_lengths(plan_, config_, model_, ranks_->layout(), ranks_->rank(),
                             {layout_, *arena_, pool_, mesh_of(config_, *ranks_)});
  Executor& executor = plans_->longest();
  executor.fill([&](const auto& open) { model_.fill_constants(plan_.graph, open); });
  Weights(executor, model_, false, pool_).load(source);
}

}  // namespace weft
