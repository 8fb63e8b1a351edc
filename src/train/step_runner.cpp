// train/step_runner.cpp: passes, update, end; faults, hashes and checks where they belong.
#include "train/step_runner.h"

#include <algorithm>

#include "train/copies.h"
#include "train/faults.h"
#include "train/not_finite.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

constexpr int64_t kCheckEvery = 100;  // steps between comparisons of batches and copies

}  // namespace

// Faults and hashes examine a step before the next one changes anything.
StepRunner::StepRunner(const Run& run, TrainState* state)
    : run_(run),
      state_(state),
      max_in_flight_(run.fault || run.hashes ? 0 : run.engine.max_steps_in_flight()) {}

// Comparisons of batches and copies: at the first step and periodically; always with hashes or
// faults.
bool StepRunner::is_check_due() {
  if (run_.ranks.size() == 1) return false;
  const bool always = run_.fault || (run_.hashes && run_.hashes->has_every_step());
  return (steps_run_++ % kCheckEvery) == 0 || always;
}

void StepRunner::run(Batch& batch) {
  const bool checks = is_check_due();
  StepMetrics line;
  line.step = ++state_->step;
  line.epoch = batch.epoch;
  run_.ranks.note_phase(Phase::kPasses, line.step);
  if (checks) compare_batches(run_.ranks, batch, line.step);
  if (run_.fault) fault_before_passes(*run_.fault, line.step, run_.config, run_.ranks, &batch);
  // The update overwrites what is being copied. All copies are complete before any rank updates, so
  // that no rank gets two steps ahead of another's copy: without shards, updates do not meet.
  line.target_tokens = run_.engine.start_passes(batch, [this] { run_.saver.wait_for_copy(); });
  if (state_->scaling.is_on())
    end_pending();  // this rate depends on whether the last step was skipped
  line.lr = learning_rate(run_.config.train.schedule, state_->updates, run_.total_steps);
  update(line);
  pending_[num_pending_++] = line;
  end_all_but(max_in_flight_);
  if (checks) compare_copies(run_.ranks, run_.engine.weights(), line.step);
}

void StepRunner::update(const StepMetrics& line) {
  run_.ranks.note_phase(Phase::kUpdate);
  const bool has_targets = line.target_tokens > 0;
  if (has_targets && run_.fault)
    fault_before_update(*run_.fault, line.step, run_.engine, run_.ranks);
  if (has_targets && run_.hashes) run_.hashes->take_gradients();
  run_.engine.start_update(line.lr, state_->updates + 1);
  if (has_targets && run_.fault)
    fault_after_update(*run_.fault, line.step, run_.engine, run_.ranks);
  if (has_targets) ++state_->updates;
}

void StepRunner::end_all_but(size_t num_left) {
  while (num_pending_ > num_left) end_step();
}

void StepRunner::end_step() {
  StepMetrics line = pending_[0];
  std::move(pending_.begin() + 1, pending_.end(), pending_.begin());
  --num_pending_;
  const Engine::StepResult ended = run_.engine.end_step();
  line.tokens = ended.sums.positions;
  if (line.target_tokens > 0) {
    line.loss = ended.sums.mean();
    check_finite(run_.config, run_.dir, line.step, *line.loss, "loss");
    take_norm(ended.grad_norm, ended.loss_scale, &line);
  }
  run_.record.step(line, ended.sums.tokens);
  if (run_.hashes) run_.hashes->write(line.step, gradient_factor(run_.config, line));
}

// fp16: a step that overflowed is skipped.
void StepRunner::take_norm(double norm, const LossScale& next, StepMetrics* line) {
  if (!state_->scaling.take(norm, next, line, &run_.record)) {
    --state_->updates;
    return;
  }
  line->grad_norm = norm;
  check_finite(run_.config, run_.dir, line->step, norm, "gradient norm");
}

}  // namespace weft
