// train/engine.h: model, plans, memory and kernels of one rank, ready to run steps.
#pragma once

#include <chrono>
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

  // All passes of a batch, of which this rank has its share. Gradients are left for update().
  LossSums run_passes(const Batch& batch);
  // Norm, clipping and AdamW with the gradients of the last run_passes; gives the gradient norm.
  double update(double lr, int64_t update_number);
  // A whole step that a GPU is left alone with: started before the one before has ended, so that it
  // never waits for the host. One rank alone; two steps at most are under way.
  bool keeps_steps_in_flight() const { return !arena_.device()->is_host() && ranks_->size() == 1; }
  // In two parts: what the second is told may depend on how the step before ended.
  void start_passes(const Batch& batch);
  void start_update(double lr, int64_t update_number);
  struct StepResult {
    LossSums sums;
    double grad_norm = 0;  // where there were targets
    LossScale loss_scale;  // of fp16: the next step's
  };
  StepResult end_step();  // of the one started first

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
  void run_finish(double lr, int64_t update_number);

  RunConfig config_;
  Ranks* ranks_;
  std::unique_ptr<EnginePlans> plans_;
  Arena arena_;
  SharedArena shared_;
  ThreadPool pool_;
  std::unique_ptr<LengthPlans> train_, eval_;
  Executor* executor_;              // of the longest training plan
  int64_t target_tokens_ = 0;       // of the last passes
  StepsInFlight::Counts counts_{};  // of the step that was started
  std::chrono::steady_clock::time_point step_begun_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<StepsInFlight> ahead_;
};

}  // namespace weft
