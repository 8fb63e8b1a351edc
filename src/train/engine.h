// train/engine.h: model, plans, memory and kernels of one rank, ready to run steps.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "data/batches.h"
#include "exec/executor.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "train/batch_runner.h"
#include "train/ranks.h"
#include "train/run_config.h"
#include "train/weights.h"

namespace weft {

// Everything that is known before memory is taken: what `weft plan` reports.
struct EnginePlans {
  Plan train;
  std::optional<Plan> eval;
  ArenaLayout layout;
};
std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Layout& layout, int rank,
                                               const Kernels& kernels, int num_threads);

// Forward and loss alone.
Plan make_eval_plan(const RunConfig& config, const Model& model, const Layout& layout, int rank,
                    const Kernels& kernels, int num_threads);

// Threads a rank uses: launch.threads, or its share of the cores this process may run on.
int choose_threads(const LaunchConfig& config, int num_ranks = 1);

class Engine {
 public:
  // One rank of a mesh; ranks must outlive the engine.
  Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
         int num_threads);

  // Exactly one of these three before the first step.
  void load_weights(const HfFolder& folder) { weights_->load(folder); }
  void init_weights(uint64_t seed) { weights_->init(seed); }
  void load_checkpoint(const CheckpointReader& reader) { weights_->load(reader); }

  // All passes of this rank's part of the batch: the sum of the token losses of all ranks.
  // Gradients are left for update().
  double run_passes(const Batch& batch);
  // Norm, clipping and AdamW with the gradients of the last run_passes; gives the gradient norm.
  double update(const Batch& batch, double lr, int64_t update_number);
  // The exact sum of the token losses of this rank's part is added to `sum`.
  void eval_loss(const Batch& batch, ExactSum* sum);

  const Weights& weights() const { return *weights_; }
  int64_t arena_bytes() const { return arena_.bytes(); }
  const EnginePlans& plans() const { return *plans_; }
  const Executor& executor() const { return *train_; }
  ThreadPool* pool() { return &pool_; }
  std::byte* parameter(const std::string& name) const { return train_->find(name); }

 private:
  RunConfig config_;
  Ranks* ranks_;
  std::unique_ptr<EnginePlans> plans_;
  Arena arena_;
  ThreadPool pool_;
  std::unique_ptr<Executor> train_, eval_;
  std::unique_ptr<BatchRunner> train_runner_, eval_runner_;
  std::unique_ptr<Weights> weights_;
  const double* grad_norm_ = nullptr;
};

}  // namespace weft
