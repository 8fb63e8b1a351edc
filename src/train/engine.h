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
#include "train/run_config.h"

namespace weft {

// Everything that is known before memory is taken: what `weft plan` reports.
struct EnginePlans {
  Plan train;
  std::optional<Plan> eval;
  ArenaLayout layout;
};
std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Kernels& kernels, int num_threads);

// Forward and loss alone.
Plan make_eval_plan(const RunConfig& config, const Model& model, const Kernels& kernels,
                    int num_threads);
// Sum of the token losses of a batch through the executor of such a plan.
double eval_loss_sum(Executor* executor, const Batch& batch, int64_t micro_batch);

// Threads a rank uses: launch.threads, or the cores this process may run on.
int choose_threads(const LaunchConfig& config);

class Engine {
 public:
  Engine(const RunConfig& config, const Model& model, const Kernels& kernels, int num_threads);

  // Exactly one of these three before the first step.
  void load_weights(const HfFolder& folder);
  void init_weights(uint64_t seed);
  void load_checkpoint(const CheckpointReader& reader);

  // All passes of the batch: the sum of the token losses. Gradients are left for update().
  double run_passes(const Batch& batch);
  // Norm, clipping and AdamW with the gradients of the last run_passes; gives the gradient norm.
  double update(const Batch& batch, double lr, int64_t update_number);
  double eval_loss_sum(const Batch& batch);

  // What a checkpoint holds: parameters or masters, states (DESIGN 1.5).
  std::vector<Slice> checkpoint_slices() const;
  // The parameters in their best precision (masters where there are), by Hugging Face name.
  std::vector<Slice> weight_slices() const;

  int64_t arena_bytes() const { return arena_.bytes(); }
  const EnginePlans& plans() const { return *plans_; }
  const Executor& executor() const { return *train_; }
  ThreadPool* pool() { return &pool_; }
  std::byte* parameter(const std::string& name) const { return train_->find(name); }

 private:
  void round_masters();  // parameters <- masters
  std::vector<Slice> slices(bool with_states) const;

  RunConfig config_;
  const Model& model_;
  std::unique_ptr<EnginePlans> plans_;
  Arena arena_;
  ThreadPool pool_;
  std::unique_ptr<Executor> train_, eval_;
};

}  // namespace weft
