// train/engine.h: model, plans, memory and kernels of one rank, ready to run steps.
#pragma once

#include <functional>
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
#include "generate/generator.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "planning/rank_plans.h"
#include "tensor/names.h"
#include "train/length_plans.h"
#include "train/ranks.h"
#include "train/steps_in_flight.h"
#include "train/weights.h"

namespace weft {

class Engine {
 public:
  // One rank of a mesh; model, ranks and device must outlive the engine. The kernels are the
  // device's.
  Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
         int num_threads, Device* device = &host_device());

  // Exactly one of these three before the first step.
  void load_weights(const HfFolder& folder) {
    whole_update_.reset();
    weights_->load(folder);
  }
  void init_weights(uint64_t seed) {
    whole_update_.reset();
    weights_->init(seed);
  }
  void load_checkpoint(const CheckpointReader& reader, bool converts = false) {
    whole_update_.reset();
    weights_->load(reader, converts);
  }
  // The update that made weights and optimizer state what they are; none while one is being made,
  // where one was interrupted, and before the first. After a load the caller may know it.
  std::optional<int64_t> whole_update() const { return whole_update_; }
  void set_whole_update(int64_t number) { whole_update_ = number; }

  // A step consists of its passes, its update and its end, when its results are read. A GPU works
  // through its queue asynchronously, so that the next step may be started before this one has
  // ended; on the CPU and with several ranks the work is done when a call returns.
  //
  // All passes of a batch, of which this rank has its share; returns the target tokens of all
  // ranks. Leaves the gradients for start_update(). Passes without an update do not count as a
  // step. before_meeting runs when this rank's passes are queued, before it waits for the others:
  // it is done on every rank when this returns on any.
  int64_t start_passes(const Batch& batch, const std::function<void()>& before_meeting = {});
  // Norm, clipping and the update with the gradients of the last start_passes; a no-op where there
  // were no targets. Separate, because its rate may depend on how the previous step ended.
  void start_update(double lr, int64_t update_number);
  struct StepResult {
    LossSums sums;         // over all ranks
    double grad_norm = 0;  // where there were targets
    LossScale loss_scale;  // fp16: the next step's
  };
  StepResult end_step();  // of the oldest started one
  // After a failure of other ranks, before anything of this one is freed: see Comm::abort_queued.
  void abort_queued() { shared_.abort_queued(); }
  // After a failure of other ranks: nothing of this rank's work is in flight any more, and nothing
  // of the others is mapped. PeerError where the device itself has failed. rejoin: before the next
  // step, when the groups of ranks were rebuilt; collective.
  void drop_steps();
  void rejoin() { shared_.rejoin(); }
  // How many steps may be in flight when the next one is started.
  size_t max_steps_in_flight() const {
    return arena_.device()->is_host() || ranks_->size() > 1 ? 0 : StepsInFlight::kMost - 1;
  }

  // fp16: the scale of the next pass, initially train.loss_scale. In a step with non-finite
  // gradients the norm is NaN, and only this scale changes.
  LossScale loss_scale() const { return executor_->read<LossScale>(names::kLossScale); }
  void set_loss_scale(LossScale scale);  // its factor is computed here

  // Only the losses. None where is_stopped() was true before a pass or after the last: all ranks
  // call it equally often, and must get the same result.
  LossSums eval_loss(const Batch& batch);
  std::optional<LossSums> eval_loss(const Batch& batch, const LengthPlans::IsStopped& is_stopped);

  // Answers with the current weights, where eval.generate is set.
  Generator& generator();

  const Weights& weights() const { return *weights_; }
  int64_t arena_bytes() const { return arena_.bytes(); }
  const EnginePlans& plans() const { return *plans_; }
  const Executor& executor() const { return *executor_; }
  ThreadPool* pool() { return &pool_; }
  std::byte* parameter(const std::string& name) const { return executor_->find(name); }

 private:
  void make_generator();
  StepScalars update_scalars(double lr, int64_t update_number) const;

  RunConfig config_;
  const Model& model_;
  Ranks* ranks_;
  std::unique_ptr<EnginePlans> plans_;
  Arena arena_;
  SharedArena shared_;
  ThreadPool pool_;
  std::unique_ptr<LengthPlans> train_, eval_;
  Executor* executor_;              // of the longest training plan
  StepsInFlight::Started started_;  // the passes that have no update yet
  std::optional<int64_t> started_update_, whole_update_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<StepsInFlight> in_flight_;
  std::unique_ptr<Generator> generator_;  // null until its first use
  struct WeightCopy {
    std::byte* to;
    const std::byte* from;
    int64_t bytes;
  };
  std::vector<WeightCopy> copied_weights_;  // those that it cannot use in place
};

}  // namespace weft
