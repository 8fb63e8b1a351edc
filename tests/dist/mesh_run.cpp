// tests/dist/mesh_run.cpp: every rank builds its engine over one shared world.
#include "tests/dist/mesh_run.h"

#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "graph/portion.h"
#include "train/engine.h"

namespace weft::testing {
namespace {

void copy_slice(const Slice& s, MeshResult* result) {
  const int64_t size = dtype_bytes(s.dtype);
  std::vector<std::byte>& whole = result->tensors[s.name];
  whole.resize(static_cast<size_t>(num_elements(s.shape) * size));
  const int64_t end = s.flat_end < 0 ? num_elements(s.extent) : s.flat_end;
  const Portion p{s.name, s.shape, s.offset, s.extent, s.flat_begin, end};
  for_each_run(p, [&](int64_t logical, int64_t count, int64_t local) {
    std::copy_n(static_cast<const std::byte*>(s.data) + local * size, count * size,
                whole.begin() + logical * size);
  });
}

// What the groups of a rank have counted so far.
MeshResult::Counted count_wire(const Mesh& mesh) {
  MeshResult::Counted all;
  const auto add = [](const Comm* group, std::array<CommCount, kNumCommOps>* to) {
    for (int op = 0; group && op < kNumCommOps; ++op) {
      const CommCount& count = group->count(static_cast<CommOp>(op));
      (*to)[static_cast<size_t>(op)].calls += count.calls;
      (*to)[static_cast<size_t>(op)].bytes += count.bytes;
    }
  };
  add(mesh.tensor, &all.tensor);
  add(mesh.copies, &all.tensor);
  add(mesh.data, &all.data);
  return all;
}

class Job {
 public:
  explicit Job(const MeshRun& run) : run_(run), model_(make_model(run.model, {})) {
    config_ = run.config;
    if (run.eval.num_rows > 0) config_.data.eval_fraction = 0.5;  // only: an eval plan is wanted
    layout_ = resolve_layout(config_, *model_);
    WorldOptions options;
    options.num_ranks = layout_.num_ranks();
    world_ = ShmWorld::create(options);
    const auto n = static_cast<size_t>(layout_.num_ranks());
    result_.calls.resize(n);
    result_.pass_flops.resize(n);
    result_.arena_bytes.resize(n);
    result_.wire.resize(n);
  }

  MeshResult run() {
    std::vector<std::thread> threads;
    for (int r = 0; r < layout_.num_ranks(); ++r) {
      threads.emplace_back([this, r] {
        try {
          run_rank(r);
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!error_) error_ = std::current_exception();
          world_->abort("a rank failed");
        }
      });
    }
    for (std::thread& t : threads) t.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(result_);
  }

 private:
  void run_rank(int rank) {
    Ranks ranks(layout_, world_, rank);
    Engine engine(config_, *model_, &ranks, cpu_kernels(), 1);
    engine.init_weights(5);
    std::vector<double> losses, norms;
    int64_t update = 0;
    for (const Batch& batch : run_.batches) {
      losses.push_back(engine.run_passes(batch) / static_cast<double>(batch.target_tokens));
      norms.push_back(engine.update(batch, run_.lr, ++update));
    }
    const std::vector<int64_t> calls = engine.executor().calls();
    const MeshResult::Counted wire = count_wire(ranks.mesh());
    ExactSum eval;
    if (run_.eval.num_rows > 0) engine.eval_loss(run_.eval, &eval);
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<size_t>(rank);
    result_.calls[at] = calls;
    result_.wire[at] = wire;
    result_.pass_flops[at] = engine.plans().train.pass_flops;
    result_.arena_bytes[at] = engine.arena_bytes();
    if (rank == 0) {
      result_.losses = losses;
      result_.norms = norms;
      result_.eval_loss = eval.value();
    }
    for (const Slice& s : engine.weights().checkpoint_slices()) copy_slice(s, &result_);
  }

  const MeshRun& run_;
  std::unique_ptr<Model> model_;
  RunConfig config_;
  Layout layout_;
  std::shared_ptr<ShmWorld> world_;
  std::mutex mutex_;
  std::exception_ptr error_;
  MeshResult result_;
};

}  // namespace

MeshResult train_mesh(const MeshRun& run) { return Job(run).run(); }

Batch random_batch(int64_t rows, int64_t positions, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  Batch b;
  b.num_rows = rows;
  b.seq_length = positions;
  for (int64_t r = 0; r < rows; ++r) {
    // Some rows have two tokens, some fill all positions.
    const int64_t length =
        2 + static_cast<int64_t>(random() % static_cast<uint64_t>(positions - 1));
    for (int64_t t = 0; t < positions; ++t) {
      const auto id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
      b.ids.push_back(t < length ? id : 0);
      b.targets.push_back(
          t + 1 < length ? static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)) : -1);
    }
    b.lengths.push_back(static_cast<int32_t>(length));
    b.target_tokens += length - 1;
  }
  return b;
}

std::vector<std::string> differences(const MeshResult& a, const MeshResult& b) {
  std::vector<std::string> found;
  if (a.losses != b.losses) found.emplace_back("loss");
  if (a.norms != b.norms) found.emplace_back("norm");
  if (a.eval_loss != b.eval_loss) found.emplace_back("eval");
  for (const auto& [name, bytes] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second != bytes) found.push_back(name);
  }
  if (a.tensors.size() != b.tensors.size()) found.emplace_back("number of tensors");
  return found;
}

}  // namespace weft::testing
