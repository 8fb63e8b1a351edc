// tests/dist/mesh_run.h: a few steps of training in any layout, with ranks that are threads.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/comm.h"
#include "comm/nccl/nccl_library.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "model/family.h"
#include "planning/layout.h"

namespace weft::testing {

class FakeDevice;

// A run's results: what exact mode promises to have the same bits in every layout.
struct MeshResult {
  std::vector<double> losses, norms;
  double eval_loss = 0;
  std::map<std::string, std::vector<std::byte>> tensors;  // parameters or masters, and states
  // Of every rank: kernel calls by op, FLOPs of a pass, bytes of the arena.
  std::vector<std::map<Op, int64_t>> calls;
  std::vector<double> pass_flops;
  std::vector<int64_t> arena_bytes;
  // Of every rank: what its groups counted in the steps.
  struct Counted {
    std::array<CommCount, kNumCommOps> tensor, data;  // tensor: with the groups of copies
  };
  std::vector<Counted> wire;
  // Of every fake GPU: what was queued in its lane, and captured.
  std::vector<int64_t> in_lane, captured;
  // Of every rank: the answers to all prompts, after each step.
  std::vector<std::vector<std::vector<std::vector<int32_t>>>> answers;
};

struct MeshRun {
  Json model;  // config.json
  std::span<const Family> families = known_families();
  RunConfig config;  // parallel, train, data.seq_length, model.freeze
  std::vector<Batch> batches;
  Batch eval;
  double lr = 1e-3;
  // Checkpoints: where to start from, after so many updates, and where the end is saved; empty:
  // none.
  std::filesystem::path resume, save;
  int64_t first_update = 0;
  // A rank's handle on the group of all; empty: chosen automatically.
  std::function<std::unique_ptr<Comm>(int rank, int num_ranks)> make_comm;
  // A rank's kernels and device (tests/backends.h); empty: the CPU's best.
  std::string backend;
  // Over NCCL, or the fake one: each rank has its own fake GPU, with the CPU's kernels.
  NcclLibrary* nccl = nullptr;
  std::function<void(FakeDevice&)> fault;  // what is wrong with these
  int64_t deadline_ms = 0;                 // of collectives; 0: the usual
  // Answered after every step, with eval.max_new_tokens; empty: eval.generate is off.
  std::vector<std::vector<int32_t>> prompts;
};

// Trains one step per batch from weights of seed 5. Ranks are threads of this process; a failure of
// one is thrown here.
MeshResult train_mesh(const MeshRun& run);

// The same run in a layout, with this many rows per pass.
struct Place {
  int dp, tp;
  const char* shard;
  int micro = 4;
};
MeshResult train_at(MeshRun run, const Place& place);

// For messages.
std::string text_of(const Place& place);
std::string join(const std::vector<std::string>& words);

// Rows of very unequal length, ids below the vocabulary; packed: of several segments.
Batch random_batch(int64_t rows, int64_t positions, int64_t vocab, uint64_t seed,
                   bool packed = false);

void swap_rows(Batch* batch, int64_t a, int64_t b);

// Every position but the last is a label, and one row of the target is only padding.
void learn_padding(Batch* batch);

// The rows of a global batch that a rank computes.
Batch share_of(const Batch& whole, const RunConfig& config, const Layout& layout, int rank);

// The names of tensors whose bytes differ, and "loss", "norm", "eval".
std::vector<std::string> differences(const MeshResult& a, const MeshResult& b);

}  // namespace weft::testing
