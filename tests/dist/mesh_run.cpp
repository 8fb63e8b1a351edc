// tests/dist/mesh_run.cpp: every rank builds its engine over one shared world.
#include "tests/dist/mesh_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "graph/portion.h"
#include "kernel/gpu/cuda_options.h"
#include "tests/backends.h"
#include "tests/batch_lists.h"
#include "tests/dist/queued_kernels.h"
#include "tests/engine_step.h"
#include "tests/fake_device.h"
#include "train/engine.h"
#include "train/host_slices.h"

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
  for (const Comm* group : mesh.copies) add(group, &all.tensor);
  add(mesh.data, &all.data);
  return all;
}

class Job {
 public:
  explicit Job(const MeshRun& run) : run_(run), model_(make_model(run.model, {}, run.families)) {
    config_ = run.config;
    if (run.eval.num_rows > 0) config_.data.eval_fraction = 0.5;  // only: an eval plan is wanted
    config_.eval.generate = static_cast<int64_t>(run.prompts.size());
    layout_ = resolve_layout(config_, *model_);
    WorldOptions options;
    options.num_ranks = layout_.num_ranks();
    if (run.deadline_ms > 0) options.deadline_ms = run.deadline_ms;
    world_ = ShmWorld::create(options);
    const auto n = static_cast<size_t>(layout_.num_ranks());
    result_.calls.resize(n);
    result_.pass_flops.resize(n);
    result_.arena_bytes.resize(n);
    result_.wire.resize(n);
    result_.in_lane.resize(n);
    result_.captured.resize(n);
    result_.answers.resize(n);
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
    Ranks ranks(layout_, world_, rank,
                run_.make_comm ? run_.make_comm(rank, layout_.num_ranks()) : nullptr);
    ranks.share_gpus(!run_.nccl);
    ranks.use_nccl(run_.nccl);
    RankBackend backend(run_.backend);
    FakeDevice* fake = nullptr;
    if (run_.nccl) {
      auto own = std::make_unique<FakeDevice>();
      fake = own.get();
      if (run_.fault) run_.fault(*fake);
      backend.own = std::move(own);
      backend.device = fake;
      backend.kernels = &queued_cpu_kernels();
    }
    set_gemm_choice(layout_.is_exact ? GemmChoice::kExact : GemmChoice::kFast);
    Engine engine(config_, *model_, &ranks, *backend.kernels, 1, backend.device);
    if (run_.resume.empty()) {
      engine.init_weights(5);
    } else {
      engine.load_checkpoint(CheckpointReader(run_.resume));
    }
    std::vector<double> losses, norms;
    int64_t update = run_.first_update;
    for (const Batch& batch : run_.batches) {
      const Engine::StepResult ended =
          run_step(engine, share_of(batch, config_, layout_, rank), run_.lr, update + 1);
      ensure(ended.sums.target_tokens == batch.target_tokens, "a share was lost");
      losses.push_back(ended.sums.mean());
      norms.push_back(ended.grad_norm);
      if (std::isfinite(norms.back())) ++update;
      if (!run_.prompts.empty()) answer(engine, rank);
    }
    const std::map<Op, int64_t> calls = engine.executor().calls();
    const MeshResult::Counted wire = count_wire(ranks.mesh());
    LossSums eval;
    if (run_.eval.num_rows > 0)
      eval.add(engine.eval_loss(share_of(run_.eval, config_, layout_, rank)));
    const HostSlices held(engine.weights().checkpoint_slices(), backend.device);
    if (!run_.save.empty()) save(held.slices(), ranks);
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<size_t>(rank);
    result_.calls[at] = calls;
    result_.wire[at] = wire;
    result_.pass_flops[at] = engine.plans().train.pass_flops;
    result_.arena_bytes[at] = engine.arena_bytes();
    if (fake) {
      result_.in_lane[at] = fake->num_queued(Queue::kLane);
      result_.captured[at] = fake->num_captured;
    }
    if (rank == 0) {
      result_.losses = losses;
      result_.norms = norms;
      result_.eval_loss = eval.loss.value();
    }
    for (const Slice& s : held.slices()) copy_slice(s, &result_);
  }

  void answer(Engine& engine, int rank) {
    SampleOptions sample;
    sample.max_new_tokens = config_.eval.max_new_tokens;
    auto made = engine.generator().generate(run_.prompts, sample);
    const std::lock_guard lock(mutex_);
    result_.answers[static_cast<size_t>(rank)].push_back(std::move(made));
  }

  void save(const std::vector<Slice>& slices, Ranks& ranks) const {
    const bool is_main = ranks.rank() == 0, alone = ranks.size() == 1;
    if (is_main && !alone) prepare_checkpoint(run_.save);
    if (!alone) ranks.world().barrier();
    write_checkpoint(run_.save, slices, Json(Json::Object{}), {{"config.json", run_.model.dump()}},
                     ranks.rank(), ranks.size());
    if (!alone) ranks.world().barrier();
    if (is_main && !alone) commit_checkpoint(run_.save, ranks.size());
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

Batch random_batch(int64_t rows, int64_t positions, int64_t vocab, uint64_t seed, bool packed) {
  std::mt19937_64 random(seed);
  Batch b;
  testing::BatchLists lists;
  for (int64_t r = 0; r < rows; ++r) {
    // Some rows have two tokens, some fill all positions.
    const int64_t length =
        2 + static_cast<int64_t>(random() % static_cast<uint64_t>(positions - 1));
    int32_t position = 0;
    for (int64_t t = 0; t < positions; ++t) {
      const auto id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
      const bool ends = packed && random() % 4 == 0;  // a segment
      const bool is_label = t + 1 < length && !ends;
      lists.ids.push_back(t < length ? id : 0);
      lists.targets.push_back(
          is_label ? static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)) : -1);
      b.target_tokens += is_label;
      lists.positions.push_back(t < length || !packed ? position : 0);
      position = ends ? 0 : position + 1;
    }
    lists.lengths.push_back(static_cast<int32_t>(length));
    lists.numbers.push_back(static_cast<int64_t>(seed) * rows + r);
  }
  lists.put(positions, &b);
  return b;
}

void swap_rows(Batch* batch, int64_t a, int64_t b) {
  for (BatchTensor& tensor : batch->tensors)
    std::swap_ranges(tensor.row(a), tensor.row(a + 1), tensor.row(b));
}

void learn_padding(Batch* batch) {
  batch->values(names::kLengths)[1] = 0;
  batch->target_tokens = 0;
  const auto ids = batch->values(names::kIds), targets = batch->values(names::kTargets);
  for (size_t i = 0; i < targets.size(); ++i) {
    const bool is_last = (i + 1) % static_cast<size_t>(batch->padded.target) == 0;
    targets[i] = is_last ? -1 : ids[i + 1];
    batch->target_tokens += !is_last;
  }
}

Batch share_of(const Batch& whole, const RunConfig& config, const Layout& layout, int rank) {
  StreamOptions options;
  options.global_batch = config.train.global_batch;
  take_share(config, layout, rank, &options);
  Batch b;
  b.padded = whole.padded;
  b.epoch = whole.epoch;
  for (BatchTensor tensor : whole.tensors) {
    tensor.bytes.clear();
    b.tensors.push_back(std::move(tensor));
  }
  for (int64_t k = 0; k < whole.num_rows; ++k) {
    if (!options.takes(k)) continue;
    ++b.num_rows;
    for (size_t i = 0; i < b.tensors.size(); ++i) {
      const BatchTensor& from = whole.tensors[i];
      b.tensors[i].bytes.insert(b.tensors[i].bytes.end(), from.row(k), from.row(k + 1));
    }
  }
  b.target_tokens =
      std::ranges::count_if(b.values(names::kTargets), [](int32_t t) { return t >= 0; });
  if (config.data.layout == "dynamic" && options.rows_per_pass > 0) {
    cut_passes(options.rows_per_pass, b);
  }
  return b;
}

std::vector<std::string> differences(const MeshResult& a, const MeshResult& b) {
  std::vector<std::string> found;
  if (a.losses != b.losses) found.emplace_back("loss");
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  if (!std::equal(a.norms.begin(), a.norms.end(), b.norms.begin(), b.norms.end(), same))
    found.emplace_back("norm");
  if (a.eval_loss != b.eval_loss) found.emplace_back("eval");
  for (const auto& [name, bytes] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second != bytes) found.push_back(name);
  }
  if (a.tensors.size() != b.tensors.size()) found.emplace_back("number of tensors");
  return found;
}

MeshResult train_at(MeshRun run, const Place& place) {
  run.config.parallel.dp = place.dp;
  run.config.parallel.tp = place.tp;
  run.config.parallel.shard = place.shard;
  run.config.train.micro_batch = place.micro;
  return train_mesh(run);
}

std::string text_of(const Place& place) {
  return fmt::format("dp {} tp {} {} micro {}", place.dp, place.tp, place.shard, place.micro);
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += w + " ";
  return text;
}

}  // namespace weft::testing
