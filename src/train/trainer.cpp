// train/trainer.cpp: start, batches, evaluation and checkpoints when due, end.
//
// Every rank runs this loop. The ranks agree on external decisions (the checkpoint to start from, a
// signal), so that all do the same at the same step; only rank 0 writes records.
#include "train/trainer.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/damaged.h"
#include "checkpoint/list.h"
#include "comm/comm.h"
#include "config/session.h"
#include "planning/backend.h"
#include "train/data_notes.h"
#include "train/engine.h"
#include "train/eval_pass.h"
#include "train/final_model.h"
#include "train/finished_run.h"
#include "train/host_slices.h"
#include "train/loss_scaling.h"
#include "train/next_batch.h"
#include "train/numerics.h"
#include "train/rank_agreement.h"
#include "train/record.h"
#include "train/run_history.h"
#include "train/run_report.h"
#include "train/saver.h"
#include "train/signals.h"
#include "train/start_state.h"
#include "train/step_runner.h"
#include "train/tensor_hashes.h"

namespace weft {
namespace {

// Null where it is another rank's.
std::exception_ptr error_of_lost_run(const RunStart& start) {
  try {
    check_run_is_ours(start);
  } catch (const RunError&) {
    return std::current_exception();
  }
  return nullptr;
}

class Trainer {
 public:
  Trainer(const RunFile& file, const TrainOptions& options, RunStart start, const RankPlace& place,
          const StopSignals& signals)
      : file_(file),
        signals_(signals),
        c_(file.config()),
        options_(options),
        session_(c_),
        ranks_(make_ranks(c_, *session_.model, place)),
        starting_(std::in_place, ranks_->world()),
        is_main_(ranks_->rank() == 0),
        rows_(session_.open_train_rows()),
        side_files_(side_files(session_)),
        stream_(c_.data, *rows_, *session_.tokenizer, share(session_.train_stream())),
        backend_(place.open_device ? place.open_device() : open_backend(c_, ranks_->rank())),
        engine_(c_, *session_.model, ranks_.get(), *backend_.kernels, place.threads,
                backend_.device),
        state_{0, 0, {}, std::nullopt, 0, LossScaling(c_, engine_)},
        numerics_(numerics_fingerprint(c_, ranks_->layout(), *backend_.kernels, *backend_.device)) {
    if (fault_) fault_->check(c_, ranks_->layout(), session_.model.get());
    agree_on_numerics(*ranks_, file.resolved(), numerics_);
    start_ = agree_on_start(*ranks_, std::move(start));
    if (c_.has_eval()) {
      eval_rows_ = session_.open_eval_rows();
      session_.check_eval_rows(*eval_rows_);
      eval_stream_ = std::make_unique<BatchStream>(c_.data, *eval_rows_, *session_.tokenizer,
                                                   share(session_.eval_stream()));
      if (c_.eval.generate > 0)
        answers_ = std::make_unique<TrainingAnswers>(session_, *eval_rows_, side_files_, &engine_,
                                                     ranks_.get());
    }
  }

  // A failure here is reported to the others at once: this rank's destructors may wait for a lost
  // GPU.
  int run() {
    try {
      return run_to_the_end();
    } catch (const PeerError& e) {
      ranks_->world().abort(e.what());
      throw;
    }
  }

 private:
  int run_to_the_end() {
    load_state();
    if (start_.finished_step) {
      log_info("{} is finished at step {}", start_.dir.string(), *start_.finished_step);
      return 0;
    }
    if (is_finished()) {
      log_info("{} is finished at step {}{}", start_.dir.string(), state_.step,
               way_to_continue(!is_past_end(state_.position.epoch)));
      return 0;
    }
    take_first_batch();
    open_run();
    const int64_t first = state_.step + 1;
    if (const int stop = loop(); stop != 0) return stopped_by(stop);
    if (fault_) fault_->check_fired(first, state_.step);
    return finish();
  }

  // ------------------------------------------------------------------ start
  // This rank tokenizes only the rows that it computes.
  StreamOptions share(StreamOptions options) const {
    take_share(c_, ranks_->layout(), ranks_->rank(), &options);
    return options;
  }

  void load_state() {
    const TrainState initial = state_;
    std::string damage;
    do {
      if (start_.finished_step) return;
      state_ = initial;
      damage = first_text(*ranks_, load_or_damage());
      if (!damage.empty()) start_another(damage);
    } while (!damage.empty());
    if (start_.checkpoint) stream_.restore(state_.position);
    const RunEnd end = find_end(c_, stream_, *ranks_);
    total_ = end.total;
    pack_size_ = end.pack_size;
  }

  // Each rank reads its slices, and checks what it reads. "", or what is damaged.
  std::string load_or_damage() {
    try {
      loaded_ = load_start(start_, session_, ranks_->layout(), numerics_, options_.convert_states,
                           &engine_, &state_);
      return "";
    } catch (const DamagedCheckpoint& e) {
      return e.what();
    }
  }

  // The checkpoint before the damaged one; rank 0 decides, as at first.
  void start_another(const std::string& damage) {
    if (is_main_) start_ = choose_again(file_, options_, std::move(start_), damage);
    start_ = agree_on_start(*ranks_, std::move(start_));
  }

  // A final/ may belong to an earlier end: of a run that was killed before it replaced it.
  bool is_finished() const {
    if (options_.overwrite || !has_final(start_.dir)) return false;
    return state_.step > 0 && loaded_.saved_step == state_.step &&
           (is_past_end(state_.position.epoch) || is_stalled()) &&
           read_history(start_.dir).finished_step == state_.step;
  }

  // train.early_stop ends the run here.
  bool is_stalled() const { return weft::is_stalled(c_.train, state_.evals_without_progress); }

  bool is_past_end(int64_t epoch) const {
    return state_.step >= total_ || (!c_.train.steps && epoch > c_.train.epochs);
  }

  // Untrainable rows are detected here, before anything is written or discarded.
  void take_first_batch() {
    if (is_past_end(state_.position.epoch)) return;
    stream_.next(batch_);
    has_batch_ = true;
    if (batch_.has_targets || state_.updates > 0) return;
    require_targets(c_, state_.position, total_ - state_.step, stream_);
  }

  // From here on the run directory belongs to this run.
  void open_run() {
    // Every rank has read its part of a checkpoint, so files may be changed now; and nobody waits
    // long for rows or for another rank from here on.
    ranks_->world().barrier();
    signals_.hold();
    if (is_main_) prepare_run_dir(file_, &start_, state_.step, options_.overwrite);
    ranks_->world().barrier();
    set_log_file(start_.dir / "log" / fmt::format("rank-{:05}.log", ranks_->rank()));
    record_ = std::make_unique<RunRecord>(RecordOptions{
        start_.dir, is_main_, options_.quiet || !is_main_, start_.is_of_other_run ? 0 : state_.step,
        options_.resume != "auto" && options_.resume != "never", total_ == kNoEnd ? 0 : total_,
        c_.train.log_every, backend_.device->is_host() ? 0 : engine_.arena_bytes()});
    saver_ = std::make_unique<Saver>(file_, side_files_, engine_, *ranks_, start_.dir, *record_,
                                     numerics_, loaded_.saved_step, save_hooks());
    const RunLength length = total_ != kNoEnd ? RunLength{total_}
                                              : most_steps(stream_.num_raw_rows(),
                                                           c_.train.global_batch, c_.train.epochs);
    report_start({file_, start_, session_, *backend_.device, state_, loaded_, length, pack_size_},
                 engine_, *ranks_, *record_);
    hashes_ = TensorHashes::from_environment(engine_, *session_.model, *ranks_, c_.train.optimizer,
                                             start_.dir, state_.step);
    steps_ =
        std::make_unique<StepRunner>(StepRunner::Run{c_, start_.dir, engine_, *ranks_, *record_,
                                                     *saver_, fault_, hashes_.get(), total_},
                                     &state_);
    if (fault_) fault_->warn();
    if (start_.checkpoint)
      log_info("resumed from {} at step {}", start_.checkpoint->string(), state_.step);
    // Only the writer has read the old lines.
    evaluated_ = agree_on_number(*ranks_, [&] { return record_->last_eval_step(); });
    starting_.reset();
    record_->restart_clock();
  }

  SaveHooks save_hooks() {
    SaveHooks hooks;
    hooks.check = [this] { check_run_is_ours(start_); };
    if (run_address_of(c_, options_).empty()) return hooks;
    hooks.push = [this] {
      if (start_.remote) start_.remote->push(c_.checkpoint.keep);
    };
    return hooks;
  }

  // ------------------------------------------------------------------ loop
  int loop() {
    if (const int stop = is_eval_missing() ? evaluate_aside() : 0; stop != 0) return stop;
    while (!is_past_end(state_.position.epoch) && !is_stalled()) {
      if (const int stop = take_batch(); stop != 0) {
        steps_->end_pending();
        return stop;
      }
      if (is_past_end(batch_.epoch)) break;
      notes_.name_rows(stream_.counters(), *record_);
      steps_->run(batch_);
      state_.position = batch_.after;
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
    return agree_on_signal(*ranks_, signals_.received());
  }

  // The next batch in batch_, or why all ranks stop here.
  int take_batch() {
    if (std::exchange(has_batch_, false)) return 0;
    const NextBatch next = next_batch(stream_, *ranks_, signals_, batch_, has_lost_run(start_));
    rows_error_ = next.error;
    ensure(next.stop != 0 || next.is_there, "training rows must not end");
    return next.stop;
  }

  // A signal interrupted the evaluation of the saved step.
  bool is_eval_missing() const {
    if (loaded_.saved_step != state_.step || state_.step == 0 || evaluated_ >= state_.step ||
        state_.step >= total_)
      return false;
    const int64_t every = c_.train.eval_every;
    return every > 0 ? state_.step % every == 0
                     : state_.position.position == 0 && state_.position.part == 0;
  }

  bool is_due(int64_t every, const Batch& batch) const {
    return every > 0 ? state_.step % every == 0 : batch.is_epoch_end;
  }

  // Work between steps does not count in their time.
  template <typename Fn>
  void aside(const Fn& fn) {
    steps_->end_pending();
    record_->clear_progress();
    fn();
    record_->restart_clock();
  }

  int evaluate_aside() {
    int stop = 0;
    aside([&] { stop = evaluate(); });
    return stop;
  }

  // Why it was ended early, or 0.
  int evaluate() {
    if (!eval_stream_) return 0;
    const EvalPass pass = evaluate_rows({*eval_stream_, *ranks_, signals_}, engine_, answers_.get(),
                                        *record_, state_.step);
    if (pass.error) rows_error_ = pass.error;
    if (pass.stop != 0) return pass.stop;
    evaluated_ = state_.step;
    saver_->keep_best(pass.value(c_.checkpoint.best), &state_);
    return 0;
  }

  // ------------------------------------------------------------------ saving
  bool is_saved() const { return saver_->saved_step() == state_.step; }

  int stopped_by(int signal) {
    record_->clear_progress();
    if (signal == kRunLost) end_without_rows(*ranks_, error_of_lost_run(start_));
    saver_->save_step_now(&state_);
    if (signal == kRowsFailed) {
      if (is_saved()) log_info("saved at step {}, before the rows that failed", state_.step);
      end_without_rows(*ranks_, rows_error_);
    }
    const char* name = signal_name(signal);
    if (!is_saved())
      throw RunError(
          fmt::format("{}: stopped at step {}, which could not be saved", name, state_.step));
    report_counters(sum_counters(*ranks_, stream_.counters()));
    record_->try_event("stopped", {{"signal", Json(name)}, {"step", Json(state_.step)}});
    if (start_.remote) start_.remote->finish(c_.checkpoint.keep);
    log_info("{}: saved at step {}; the same command resumes from there", name, state_.step);
    return 128 + signal;
  }

  int finish() {
    record_->clear_progress();
    if (const int stop = evaluated_ != state_.step ? evaluate() : 0) return stopped_by(stop);
    // Tensors in pieces (of several ranks, or exact mode's) are assembled from the checkpoint.
    const bool has_whole = ranks_->size() == 1 && !ranks_->layout().is_exact;
    if (state_.step > 0 || !has_whole) saver_->save_step_now(&state_);
    check_learned(state_.step, state_.updates, state_.scaling.skipped() > 0);
    const DataCounters counted = sum_counters(*ranks_, stream_.counters());
    std::optional<int64_t> best_step;
    if (is_main_) {  // no more waiting for other ranks from here on
      check_run_is_ours(start_);
      if (is_early_) {
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

  void write_last_model(bool has_whole) {
    if (!has_whole && !is_saved()) throw unsaved_end(start_.dir, state_.step, false);
    const HostSlices held(has_whole ? engine_.weights().weight_slices() : std::vector<Slice>{},
                          backend_.device);
    write_final_model(start_.dir / "final",
                      has_whole
                          ? tensors_in_memory(held.slices())
                          : open_logical(checkpoint_path(start_.dir, state_.step).string()).weights,
                      side_files_, session_);
  }

  const RunFile& file_;
  const StopSignals& signals_;
  const RunConfig& c_;
  const std::optional<Fault> fault_ = Fault::from_environment();
  TrainOptions options_;
  Session session_;
  std::unique_ptr<Ranks> ranks_;
  std::optional<ScopedNoDeadline> starting_;  // reading, tokenizing and counting may take long
  const bool is_main_;
  RunStart start_;
  std::unique_ptr<RowSource> rows_, eval_rows_;
  const std::map<std::string, std::string> side_files_;  // read once: saves do not read them again
  BatchStream stream_;
  std::unique_ptr<BatchStream> eval_stream_;
  Backend backend_;
  Engine engine_;
  std::unique_ptr<TrainingAnswers> answers_;  // null: none are generated
  TrainState state_;
  const Json numerics_;  // the fingerprint
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<TensorHashes> hashes_;  // null: not requested
  std::unique_ptr<StepRunner> steps_;
  std::optional<PackSize> pack_size_;  // of the first epoch, where it was counted
  Batch batch_;
  bool has_batch_ = false;  // the next one is in batch_ already
  bool is_early_ = false;   // train.early_stop ended the loop
  std::exception_ptr rows_error_;
  DataNotes notes_;

  LoadedStart loaded_;
  int64_t evaluated_ = -1, total_ = kNoEnd;
};

}  // namespace

int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place) {
  const StopSignals signals(place.world.get());  // first: a signal at any time ends cleanly
  // Rank 0 determines where the run starts; its errors end all ranks.
  RunStart start = place.rank == 0 ? open_run_dir(file, options) : RunStart{};
  return Trainer(file, options, std::move(start), place, signals).run();
}

}  // namespace weft
