// train/eval_engine.h: the losses of batches, with a run's plans or with a plan for this alone.
#pragma once

#include <memory>
#include <optional>

#include "base/threads.h"
#include "checkpoint/logical.h"
#include "config/run_config.h"
#include "exec/loss_sums.h"
#include "model/model.h"
#include "planning/backend.h"
#include "train/length_plans.h"
#include "train/ranks.h"

namespace weft {

// The evaluation plan with its shorter ones.
std::unique_ptr<LengthPlans> make_eval_lengths(const Plan& plan, const RunConfig& config,
                                               const Model& model, const Layout& layout, int rank,
                                               const LengthPlans::Place& place);

// Memory for plans without training: other ranks can read it where passes communicate.
std::unique_ptr<Arena> make_pass_arena(Ranks* ranks, int64_t bytes, Device* device);

// What the passes of this layout need to know about the ranks.
Mesh mesh_of(const RunConfig& config, const Ranks& ranks);

// The totals of all ranks' shares of a batch. Collective; exact, whatever the shares are.
LossSums sum_over_ranks(Ranks& ranks, const ExactSum& loss, const Batch& batch);

// This rank's passes of an evaluation batch, then the totals. None where is_stopped() was true
// before a pass or after the last: all ranks call it equally often, and must get the same result.
std::optional<LossSums> eval_batch(LengthPlans& plans, Ranks& ranks, const Batch& batch,
                                   const LengthPlans::IsStopped& is_stopped);

// One rank of an evaluation without training. The ranks, the backend and the pool must outlive it.
class EvalEngine {
 public:
  EvalEngine(const RunConfig& config, const Model& model, Ranks* ranks, const Backend& backend,
             ThreadPool* pool);

  int64_t arena_bytes() const { return layout_.total_bytes(); }
  // Allocates the arena and fills in the model. Collective.
  void load(const LogicalModel& source);
  std::optional<LossSums> eval_loss(const Batch& batch, const LengthPlans::IsStopped& is_stopped) {
    return eval_batch(*plans_, *ranks_, batch, is_stopped);
  }

 private:
  const RunConfig& config_;
  const Model& model_;
  Ranks* ranks_;
  const Backend& backend_;
  ThreadPool* pool_;
  Plan plan_;
  ArenaLayout layout_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SharedArena> shared_;
  std::unique_ptr<LengthPlans> plans_;
};

}  // namespace weft
