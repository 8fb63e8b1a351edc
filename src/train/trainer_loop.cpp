// train/trainer_loop.cpp: batches, evaluation and checkpoints when due, the end.
#include <chrono>
#include <utility>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/list.h"
#include "net/regroup.h"
#include "train/eval_pass.h"
#include "train/final_model.h"
#include "train/finished_run.h"
#include "train/host_slices.h"
#include "train/next_batch.h"
#include "train/rank_agreement.h"
#include "train/rank_trainer.h"
#include "train/run_report.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Null where it is another rank's.
std::exception_ptr error_of_lost_run(const RunStart& start) {
  try {
    check_run_is_ours(start);
  } catch (const RunError&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

int Trainer::loop() {
  if (const int stop = is_eval_missing() ? evaluate_aside() : 0; stop != 0) return stop;
  while (!is_past_end(state_.position.epoch) && !is_stalled()) {
    if (const int stop = take_batch(); stop != 0) {
      steps_->end_pending();
      return stop;
    }
    if (is_past_end(batch_.epoch)) break;
    snapshot_if_due();
    notes_.name_rows(stream_.counters(), *record_);
    const auto begun = Clock::now();
    steps_->run(batch_);
    state_.position = batch_.after;
    note_step(seconds_since(begun));
    if (batch_.is_epoch_end) {
      steps_->end_pending();
      record_->end_epoch(batch_.epoch);
    }
    const bool last = state_.step >= total_;
    const bool evaluates = !last && is_due(c_.train.eval_every, batch_);
    if (const int stop = evaluates ? evaluate_aside() : 0; stop != 0) return stop;
    if (!last && is_due(c_.checkpoint.every, batch_)) aside([&] { saver_->save_step(&state_); });
  }
  steps_->end_pending();
  saver_->end_saves(&state_);
  is_early_ = is_stalled() && !is_past_end(state_.position.epoch);
  return agree_on_signal(*ranks_, has_lost_run(start_) ? kRunLost : signals_.received());
}

int Trainer::take_batch() {
  ranks_->note_phase(Phase::kData, state_.step + 1);
  if (std::exchange(has_batch_, false)) return 0;
  // The exchange then says that every rank's last snapshot is whole on both nodes that have it.
  if (saver_->has_slots() && cadence_.is_due(state_.step)) saver_->wait_for_partner();
  const NextBatch next = next_batch(stream_, *ranks_, signals_, batch_, has_lost_run(start_));
  rows_error_ = next.error;
  ensure(next.stop != 0 || next.is_there, "training rows must not end");
  return next.stop;
}

bool Trainer::is_eval_missing() const {
  if (loaded_.saved_step != state_.step || state_.step == 0 || evaluated_ >= state_.step ||
      state_.step >= total_)
    return false;
  const int64_t every = c_.train.eval_every;
  return every > 0 ? state_.step % every == 0
                   : state_.position.position == 0 && state_.position.part == 0;
}

bool Trainer::is_due(int64_t every, const Batch& batch) const {
  return every > 0 ? state_.step % every == 0 : batch.is_epoch_end;
}

int Trainer::evaluate_aside() {
  int stop = 0;
  aside([&] { stop = evaluate(); });
  return stop;
}

int Trainer::evaluate() {
  if (!eval_stream_) return 0;
  const EvalPass pass = evaluate_rows({*eval_stream_, *ranks_, signals_}, engine_, answers_.get(),
                                      *record_, state_.step);
  if (pass.error) rows_error_ = pass.error;
  if (pass.stop != 0) return pass.stop;
  evaluated_ = state_.step;
  saver_->keep_best(pass, &state_);
  return 0;
}

int Trainer::stopped_by(int signal) {
  ranks_->note_phase(Phase::kFinishing, state_.step);
  record_->clear_progress();
  if (signal == kRunLost) {
    saver_->end_saves(&state_);  // no rank waits for another one's disk with a deadline
    end_with_error(*ranks_, error_of_lost_run(start_));
  }
  saver_->save_step_now(&state_);
  if (signal == kRowsFailed) {
    if (is_saved()) log_info("saved at step {}, before the rows that failed", state_.step);
    end_with_error(*ranks_, rows_error_);
  }
  if (signal == kRegroup) return leave_layout();
  const bool is_asked = signal != kSaveAndEnd;  // by a user; else the supervisor reports the end
  const char* name = is_asked ? signal_name(signal) : "too few nodes";
  if (!is_saved())
    throw RunError(
        fmt::format("{}: stopped at step {}, which could not be saved", name, state_.step));
  report_counters(sum_counters(*ranks_, stream_.counters()));
  if (is_asked)
    record_->try_event("stopped", {{"signal", Json(name)}, {"step", Json(state_.step)}});
  if (start_.remote) start_.remote->finish(c_.checkpoint.keep);
  log_info("{}: saved at step {}; the same command resumes from there", name, state_.step);
  return 128 + signal;
}

// The next generation continues from here, in a larger layout. A step that cannot be saved (a full
// disk) is no reason to end: training goes on in this one.
bool Trainer::can_leave_layout() {
  saver_->save_step_now(&state_);
  if (is_saved() || !place_.world) return true;
  if (is_main_)
    log_warning("step {} could not be saved: the nodes that have joined stay spares", state_.step);
  place_.world->refuse_regroup();
  stream_.restore(state_.position);
  stream_.set_counters(counters_);
  has_batch_ = false;
  loaded_.saved_step = state_.step;  // an evaluation that is due there may be missing
  return false;
}

int Trainer::leave_layout() {
  if (!is_saved())
    throw PeerError(fmt::format(
        "step {} could not be saved, from which other nodes would have joined", state_.step));
  log_info("saved at step {}, from which more nodes join", state_.step);
  return kRegroupExit;
}

int Trainer::finish() {
  record_->clear_progress();
  if (const int stop = evaluated_ != state_.step ? evaluate() : 0) return stopped_by(stop);
  ranks_->note_phase(Phase::kFinishing, state_.step);
  // Tensors in pieces (of several ranks, or exact mode's) are assembled from the checkpoint.
  const bool has_whole = ranks_->size() == 1 && !ranks_->layout().is_exact;
  saver_->save_step_now(&state_);
  check_learned(state_.step, state_.updates, state_.scaling.skipped() > 0);
  const DataCounters counted = sum_counters(*ranks_, stream_.counters());
  std::optional<int64_t> best_step;
  if (is_main_) {  // no more waiting for other ranks from here on
    if (place_.world) place_.world->note_finishing();
    check_run_is_ours(start_);
    if (is_early_) {
      require_best(state_.best, c_.checkpoint.best, state_.step);
      best_step = write_best_as_final(start_.dir, state_.step, side_files_, session_);
    } else {
      write_last_model(has_whole);
    }
    if (state_.step > 0 && !is_saved()) throw unsaved_end(start_.dir, state_.step, true);
  }
  report_finish(c_, start_.dir, state_, counted, best_step, *record_);
  if (start_.remote) start_.remote->finish(c_.checkpoint.keep);
  return 0;
}

void Trainer::write_last_model(bool has_whole) {
  if (!has_whole && !is_saved()) throw unsaved_end(start_.dir, state_.step, false);
  const HostSlices held(has_whole ? engine_.weights().weight_slices() : std::vector<Slice>{},
                        backend_.device);
  write_final_model(start_.dir / "final",
                    has_whole
                        ? tensors_in_memory(held.slices())
                        : open_logical(checkpoint_path(start_.dir, state_.step).string()).weights,
                    side_files_, session_);
}

}  // namespace weft
