// train/engine.h: model, plans, memory and kernels of one rank, ready to run steps.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "exec/executor.h"
#include "exec/loss_sums.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "planning/rank_plans.h"
#include "tensor/names.h"
#include "train/length_plans.h"
#include "train/ranks.h"
#include "train/steps_in_flight.h"
#include "train/weights.h"

namespace weft {

// The evaluation plan with its shorter ones.
std::unique_ptr<LengthPlans> make_eval_lengths(const Plan& plan, const RunConfig& config,
                                               const Model& model, const Layout& layout, int rank,
                                               const LengthPlans::Place& place);

class Engine {
 public:
  // One rank of a mesh; model, ranks and device must outlive the engine. The kernels are the
  // device's.
  Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
         int num_threads, Device* device = &host_device());

  // Exactly one of these three before the first step.
  void load_weights(const HfFolder& folder) { weights_->load(folder); }
  void init_weights(uint64_t seed) { weights_->init(seed); }
  void load_checkpoint(const CheckpointReader& reader) { weights_->load(reader); }

  // A step is its passes, its update and its end, in which its numbers are read. A GPU works on its
  // queue by itself, so that the next step may be started before this one has ended; on the CPU
  // and with several ranks the work is done when a call returns.
  //
  // All passes of a batch, of which this rank has its share; gives the target tokens of all ranks.
  // The gradients are there for start_update(). Passes without an update are no step.
  int64_t start_passes(const Batch& batch);
  // Norm, clipping and the update with the gradients of the last start_passes; nothing is changed
  // where there were no targets. A part of its own: its rate may depend on how the step before
  // ended.
  void start_update(double lr, int64_t update_number);
  struct StepResult {
    LossSums sums;         // over all ranks
    double grad_norm = 0;  // where there were targets
    LossScale loss_scale;  // of fp16: the next step's
  };
  StepResult end_step();  // of the one started first
  // How many steps may be in flight when the next one is started.
  size_t max_steps_in_flight() const {
    return arena_.device()->is_host() || ranks_->size() > 1 ? 0 : StepsInFlight::kMost - 1;
  }

  // fp16: the scale that the next pass takes, that of train.loss_scale at first. In a step whose
  // gradients are not finite the norm is NaN, nothing is changed but this scale.
  LossScale loss_scale() const { return executor_->read<LossScale>(names::kLossScale); }
  void set_loss_scale(LossScale scale);  // whose factor is found here

  // The losses alone. Nothing where is_stopped() held before a pass or after the last: all ranks
  // ask it as often, and must be given the same answer.
  LossSums eval_loss(const Batch& batch);
  std::optional<LossSums> eval_loss(const Batch& batch, const LengthPlans::IsStopped& is_stopped);

  const Weights& weights() const { return *weights_; }
  int64_t arena_bytes() const { return arena_.bytes(); }
  const EnginePlans& plans() const { return *plans_; }
  const Executor& executor() const { return *executor_; }
  ThreadPool* pool() { return &pool_; }
  std::byte* parameter(const std::string& name) const { return executor_->find(name); }

 private:
  LossSums sum_over_ranks(const ExactSum& loss, const Batch& batch);
  StepScalars update_scalars(double lr, int64_t update_number) const;

  RunConfig config_;
  Ranks* ranks_;
  std::unique_ptr<EnginePlans> plans_;
  Arena arena_;
  SharedArena shared_;
  ThreadPool pool_;
  std::unique_ptr<LengthPlans> train_, eval_;
  Executor* executor_;              // of the longest training plan
  StepsInFlight::Started started_;  // the passes that have no update yet
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<StepsInFlight> in_flight_;
};

}  // namespace weft
