// train/trainer.cpp: batch, passes, update, metrics; evaluation and checkpoints at their times.
//
// Every rank runs this loop. What is decided from outside (the checkpoint to start from, a signal)
// is agreed on, so that all ranks do the same at the same step; rank 0 alone writes what is
// recorded.
#include "train/trainer.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/list.h"
#include "comm/comm.h"
#include "config/schedule_warnings.h"
#include "config/session.h"
#include "planning/backend.h"
#include "planning/idle_keys.h"
#include "train/copies.h"
#include "train/data_notes.h"
#include "train/engine.h"
#include "train/eval_pass.h"
#include "train/faults.h"
#include "train/final_model.h"
#include "train/finished_run.h"
#include "train/host_slices.h"
#include "train/loss_scaling.h"
#include "train/next_batch.h"
#include "train/not_finite.h"
#include "train/numerics.h"
#include "train/rank_agreement.h"
#include "train/record.h"
#include "train/run_history.h"
#include "train/saver.h"
#include "train/signals.h"
#include "train/start_line.h"
#include "train/start_state.h"
#include "train/tensor_hashes.h"

namespace weft {
namespace {

constexpr int64_t kCheckEvery = 100;  // steps between comparisons of batches and copies

std::unique_ptr<Ranks> make_ranks(const RunConfig& c, const Model& model, const RankPlace& place) {
  const Layout layout = resolve_layout(c, model);
  if (!place.world) return std::make_unique<Ranks>(layout);
  auto ranks =
      std::make_unique<Ranks>(layout, place.world, place.rank, nullptr, c.launch.interface);
  if (place.open_device) ranks->share_gpus(!place.nccl);
  ranks->use_nccl(place.nccl);
  return ranks;
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
        scaling_(c_, engine_),
        numerics_(numerics_fingerprint(c_, ranks_->layout(), *backend_.kernels, *backend_.device)) {
    if (fault_) fault_->check(c_, ranks_->layout(), session_.model.get());
    agree_on_numerics(*ranks_, file.resolved(), numerics_);
    start_ = agree_on_start(*ranks_, std::move(start));
    if (c_.has_eval()) {
      eval_rows_ = session_.open_eval_rows();
      session_.check_eval_rows(*eval_rows_);
      eval_stream_ = std::make_unique<BatchStream>(c_.data, *eval_rows_, *session_.tokenizer,
                                                   share(session_.eval_stream()));
    }
  }

  // What failed here is reported to the others at once: what ends with this rank may wait for a GPU
  // that is lost.
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
    if (start_.finished_step) {
      log_info("{} is finished at step {}", start_.dir.string(), *start_.finished_step);
      return 0;
    }
    load_state();
    if (is_finished()) {
      log_info("{} is finished at step {}: raise train.steps or train.epochs to go on",
               start_.dir.string(), step_);
      return 0;
    }
    take_first_batch();
    open_run();
    const int64_t first = step_ + 1;
    if (const int stop = loop(); stop != 0) return stopped_by(stop);
    if (fault_) fault_->check_fired(first, step_);
    return finish();
  }

  // ------------------------------------------------------------------ start
  // This rank makes the rows that it computes, no others.
  StreamOptions share(StreamOptions options) const {
    take_share(c_, ranks_->layout(), ranks_->rank(), &options);
    return options;
  }

  void load_state() {
    const StartState begin =
        load_start(start_, session_, ranks_->layout(), numerics_, &engine_, &scaling_);
    step_ = begin.step;
    updates_ = begin.updates;
    saved_step_ = begin.saved_step;
    position_ = begin.position;
    best_eval_ = begin.best_eval;
    if (start_.checkpoint) stream_.restore(position_);
    const RunEnd end = find_end(c_, stream_, *ranks_);
    total_ = end.total;
    pack_size_ = end.pack_size;
  }

  // A final/ may be of an earlier end: that of a run which was killed before it had replaced it.
  bool is_finished() const {
    if (options_.overwrite || !has_final(start_.dir)) return false;
    return step_ > 0 && saved_step_ == step_ && is_past_end(position_.epoch) &&
           read_history(start_.dir).finished_step == step_;
  }

  bool is_past_end(int64_t epoch) const {
    return step_ >= total_ || (!c_.train.steps && epoch > c_.train.epochs);
  }

  // Rows that cannot be trained on are found here, before anything is written or given up.
  void take_first_batch() {
    if (is_past_end(position_.epoch)) return;
    stream_.next(batch_);
    has_batch_ = true;
    if (batch_.has_targets || updates_ > 0) return;
    require_targets(c_, position_, total_ - step_, stream_);
  }

  // From here on the run directory is this run's.
  void open_run() {
    // Every rank has read its part of a checkpoint, so that now something may be changed; and
    // nobody waits long for rows or for another rank from here on.
    ranks_->world().barrier();
    signals_.hold();
    if (is_main_) prepare_run_dir(file_, &start_, step_, options_.overwrite);
    ranks_->world().barrier();
    set_log_file(start_.dir / "log" / fmt::format("rank-{:05}.log", ranks_->rank()));
    record_ = std::make_unique<RunRecord>(RecordOptions{
        start_.dir, is_main_, options_.quiet || !is_main_, start_.is_of_other_run ? 0 : step_,
        options_.resume != "auto" && options_.resume != "never", total_ == kNoEnd ? 0 : total_,
        c_.train.log_every, backend_.device->is_host() ? 0 : engine_.arena_bytes()});
    saver_ = std::make_unique<Saver>(file_, side_files_, engine_, *ranks_, start_.dir, *record_,
                                     numerics_);
    Json::Array arenas;
    for (const int64_t bytes : gather_numbers(*ranks_, engine_.arena_bytes()))
      arenas.push_back(Json(bytes));
    record_->event("started",
                   {{"arena_bytes", Json(engine_.arena_bytes())},
                    {"arenas", Json(std::move(arenas))},
                    {"step", Json(step_)},
                    {"from", start_.checkpoint ? Json(start_.checkpoint->string()) : Json()},
                    {"ranks", Json(ranks_->size())},
                    {"threads", Json(engine_.pool()->num_threads())},
                    {"kernels", Json(engine_.plans().train.options.kernels->name)}});
    if (!start_.checkpoint) log_info("{}", file_.resolved());
    for (const std::string& line : idle_keys(c_)) log_warning("{}", line);
    const RunLength length = total_ != kNoEnd ? RunLength{total_}
                                              : most_steps(stream_.num_raw_rows(),
                                                           c_.train.global_batch, c_.train.epochs);
    warn_of_schedule(c_.train.schedule, length, {step_, updates_, record_->last_lr()});
    report_device(c_, *backend_.device);
    log_info("{}", start_line(c_, *session_.model, ranks_->layout(), &engine_, *backend_.device));
    if (pack_size_) log_info("data: {}", describe_pack(*pack_size_));
    hashes_ = TensorHashes::from_environment(engine_, *session_.model, *ranks_, start_.dir, step_);
    if (fault_) fault_->warn();
    if (start_.checkpoint)
      log_info("resumed from {} at step {}", start_.checkpoint->string(), step_);
    // Only the writer has read the old lines.
    evaluated_ = agree_on_number(*ranks_, [&] { return record_->last_eval_step(); });
    starting_.reset();
    record_->restart_clock();
  }

  // ------------------------------------------------------------------ loop
  int loop() {
    if (const int stop = is_eval_missing() ? evaluate_aside() : 0; stop != 0) return stop;
    while (!is_past_end(position_.epoch)) {
      Batch& batch = batch_;
      if (const int stop = take_batch(); stop != 0) {
        settle();
        return stop;
      }
      if (is_past_end(batch.epoch)) break;
      notes_.name_rows(stream_.counters(), *record_);
      one_step(batch);
      position_ = batch.after;
      if (batch.is_epoch_end) {
        settle();
        record_->end_epoch(batch.epoch);
      }
      const bool last = step_ >= total_;
      const bool evaluates = !last && is_due(c_.train.eval_every, batch);
      if (const int stop = evaluates ? evaluate_aside() : 0; stop != 0) return stop;
      if (!last && is_due(c_.checkpoint.every, batch)) aside([&] { save(); });
    }
    settle();
    return agree_on_signal(*ranks_, signals_.received());
  }

  // The next batch in batch_, or why all ranks stop here.
  int take_batch() {
    if (std::exchange(has_batch_, false)) return 0;
    const NextBatch next = next_batch(stream_, *ranks_, signals_, batch_);
    rows_error_ = next.error;
    ensure(next.stop != 0 || next.is_there, "the rows of training have no end");
    return next.stop;
  }

  // A signal had ended the evaluation of the step that was saved.
  bool is_eval_missing() const {
    if (saved_step_ != step_ || step_ == 0 || evaluated_ >= step_ || step_ >= total_) return false;
    const int64_t every = c_.train.eval_every;
    return every > 0 ? step_ % every == 0 : position_.position == 0 && position_.part == 0;
  }

  bool is_due(int64_t every, const Batch& batch) const {
    return every > 0 ? step_ % every == 0 : batch.is_epoch_end;
  }

  // Of batches and copies: at the first step and now and then; always where somebody looks closely.
  bool is_check_due() {
    if (ranks_->size() == 1) return false;
    const bool always = fault_ || (hashes_ && hashes_->has_every_step());
    return (steps_done_++ % kCheckEvery) == 0 || always;
  }

  // A GPU is given the next step before the last one's numbers are read.
  void start_step(const Batch& batch) {
    StepMetrics line;
    line.step = ++step_;
    line.epoch = batch.epoch;
    engine_.start_passes(batch);
    if (scaling_.is_on()) settle();  // whether the last step counts decides this one's rate
    line.lr = learning_rate(c_.train.schedule, updates_, total_);
    engine_.start_update(line.lr, updates_ + 1);
    if (batch.target_tokens > 0) ++updates_;
    settle();
    under_way_ = line;
  }

  // The numbers of the step that is under way, written.
  void settle() {
    if (!under_way_) return;
    StepMetrics line = *std::exchange(under_way_, std::nullopt);
    const Engine::StepResult ended = engine_.end_step();
    line.tokens = ended.sums.positions;
    line.target_tokens = ended.sums.target_tokens;
    if (line.target_tokens > 0) {
      line.loss = ended.sums.mean();
      check_finite(c_, start_.dir, line.step, *line.loss, "loss");
      take_norm(ended.grad_norm, ended.loss_scale, &line);
    }
    record_->step(line, ended.sums.tokens);
  }

  // fp16: a step that overflowed does not count.
  void take_norm(double norm, const LossScale& next, StepMetrics* line) {
    if (!scaling_.take(norm, next, line, record_.get())) return static_cast<void>(--updates_);
    line->grad_norm = norm;
    check_finite(c_, start_.dir, line->step, norm, "gradient norm");
  }

  void one_step(Batch& batch) {
    if (engine_.keeps_steps_in_flight() && !fault_ && !hashes_) return start_step(batch);
    const bool checks = is_check_due();
    if (checks) compare_batches(*ranks_, batch, step_ + 1);
    if (fault_) fault_before_passes(*fault_, step_ + 1, c_, *ranks_, &batch);
    StepMetrics line;
    line.step = ++step_;
    line.epoch = batch.epoch;
    line.lr = learning_rate(c_.train.schedule, updates_, total_);
    const LossSums sums = engine_.run_passes(batch);
    line.tokens = sums.positions;
    line.target_tokens = sums.target_tokens;
    if (sums.target_tokens > 0) {
      line.loss = sums.mean();
      check_finite(c_, start_.dir, step_, *line.loss, "loss");
      if (fault_) fault_before_update(*fault_, step_, engine_, *ranks_);
      if (hashes_) hashes_->take_gradients();
      const double norm = engine_.update(line.lr, updates_ + 1);
      if (fault_) fault_after_update(*fault_, step_, engine_, *ranks_);
      ++updates_;
      take_norm(norm, scaling_.is_on() ? engine_.loss_scale() : LossScale{}, &line);
    }
    record_->step(line, sums.tokens);
    if (hashes_) hashes_->write(step_, gradient_factor(c_, line));
    if (checks) compare_copies(*ranks_, engine_.weights(), step_);
  }

  // Work between steps does not count in their time.
  template <typename Fn>
  void aside(const Fn& fn) {
    settle();
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
    const EvalPass pass = evaluate_rows(*eval_stream_, engine_, *ranks_, signals_, *record_, step_);
    if (pass.error) rows_error_ = pass.error;
    if (pass.stop != 0) return pass.stop;
    evaluated_ = step_;
    if (!pass.loss || (best_eval_ && *pass.loss >= *best_eval_)) return 0;
    const std::optional<double> before = std::exchange(best_eval_, pass.loss);
    if (!saver_->save_best(state())) best_eval_ = before;  // the next better one is tried again
    return 0;
  }

  // ------------------------------------------------------------------ saving
  TrainState state() const { return {step_, updates_, position_, best_eval_, scaling_}; }

  void save() {
    if (saved_step_ != step_ && saver_->save_step(state())) saved_step_ = step_;
  }

  int stopped_by(int signal) {
    record_->clear_progress();
    save();
    if (signal == kRowsFailed) {
      if (saved_step_ == step_) log_info("saved at step {}, before the rows that failed", step_);
      end_without_rows(*ranks_, rows_error_);
    }
    const char* name = signal_name(signal);
    if (saved_step_ != step_)
      throw RunError(fmt::format("{}: stopped at step {}, which could not be saved", name, step_));
    report_counters(sum_counters(*ranks_, stream_.counters()));
    record_->try_event("stopped", {{"signal", Json(name)}, {"step", Json(step_)}});
    log_info("{}: saved at step {}; the same command goes on from there", name, step_);
    return 128 + signal;
  }

  int finish() {
    record_->clear_progress();
    if (const int stop = evaluated_ != step_ ? evaluate() : 0) return stopped_by(stop);
    // Tensors that are in pieces (of several ranks, or exact mode's) are put together from what was
    // saved.
    const bool has_whole = ranks_->size() == 1 && !ranks_->layout().is_exact;
    if (step_ > 0 || !has_whole) save();
    check_learned(step_, updates_, scaling_.skipped() > 0);
    const DataCounters counted = sum_counters(*ranks_, stream_.counters());
    if (is_main_) {  // nobody waits for the others from here on
      const HostSlices held(has_whole ? engine_.weights().weight_slices() : std::vector<Slice>{},
                            backend_.device);
      write_final_model(start_.dir / "final",
                        has_whole ? tensors_in_memory(held.slices())
                                  : open_logical(saved_checkpoint().string()).weights,
                        side_files_, session_);
      if (step_ > 0 && saved_step_ != step_) throw unsaved_end(start_.dir, step_, true);
    }
    record_->event("finished", {{"step", Json(step_)},
                                {"loss", to_json(record_->final_loss())},
                                {"skipped_steps", Json(step_ - updates_)}});
    report_counters(counted);
    const int64_t overflowed = scaling_.skipped(), empty = step_ - updates_ - overflowed;
    if (overflowed > 0)
      log_info("{} of {} steps overflowed in fp16 and changed nothing", overflowed, step_);
    if (empty > 0) log_info("{} of {} steps had no target token and changed nothing", empty, step_);
    record_->draw_curve(c_.name);
    log_info("finished step {} in {}; final loss {}, best loss {}; model in {}", step_,
             format_duration(record_->seconds()), show(record_->final_loss()),
             show(record_->best_loss()), (start_.dir / "final").string());
    return 0;
  }

  std::filesystem::path saved_checkpoint() const {
    if (saved_step_ != step_) throw unsaved_end(start_.dir, step_, false);
    return checkpoint_path(start_.dir, step_);
  }

  static Json to_json(const std::optional<double>& v) { return v ? Json(*v) : Json(); }
  static std::string show(const std::optional<double>& v) {
    return v ? fmt::format("{:.5f}", *v) : "none";
  }

  const RunFile& file_;
  const StopSignals& signals_;
  const RunConfig& c_;
  const std::optional<Fault> fault_ = Fault::from_environment();
  TrainOptions options_;
  Session session_;
  std::unique_ptr<Ranks> ranks_;
  std::optional<ScopedNoDeadline> starting_;  // ranks may read, tokenize and count for long
  const bool is_main_;
  RunStart start_;
  std::unique_ptr<RowSource> rows_, eval_rows_;
  const std::map<std::string, std::string> side_files_;  // read once: a save needs none of them
  BatchStream stream_;
  std::unique_ptr<BatchStream> eval_stream_;
  Backend backend_;
  Engine engine_;
  LossScaling scaling_;
  const Json numerics_;  // the fingerprint
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<TensorHashes> hashes_;  // null: not asked for
  std::optional<PackSize> pack_size_;     // of the first epoch, where it was counted
  Batch batch_;
  bool has_batch_ = false;  // the next one is in batch_ already
  std::exception_ptr rows_error_;
  DataNotes notes_;

  int64_t step_ = 0, updates_ = 0, saved_step_ = -1, evaluated_ = -1, steps_done_ = 0;
  int64_t total_ = kNoEnd;
  StreamState position_;
  std::optional<StepMetrics> under_way_;  // on a GPU
  std::optional<double> best_eval_;
};

}  // namespace

int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place) {
  const StopSignals signals(place.world.get());  // first: a signal at any time ends in order
  // Rank 0 looks where the run stands; what it throws ends all ranks.
  RunStart start = place.rank == 0 ? open_run_dir(file, options) : RunStart{};
  return Trainer(file, options, std::move(start), place, signals).run();
}

}  // namespace weft
