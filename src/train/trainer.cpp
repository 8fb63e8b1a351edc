// train/trainer.cpp: batch, passes, update, metrics; evaluation and checkpoints at their times.
#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "track/memory.h"
#include "track/plot.h"
#include "track/progress.h"
#include "track/run_files.h"
#include "train/engine.h"
#include "train/final_model.h"
#include "train/saver.h"
#include "train/session.h"
#include "train/signals.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

class Trainer {
 public:
  Trainer(const RunFile& file, const TrainOptions& options, RunStart start,
          const StopSignals& signals)
      : file_(file),
        signals_(signals),
        c_(file.config()),
        options_(options),
        start_(std::move(start)),
        session_(c_),
        rows_(session_.open_train_rows()),
        stream_(c_.data, *rows_, *session_.tokenizer, session_.train_stream()),
        engine_(c_, *session_.model, cpu_kernels(), choose_threads(c_.launch)) {
    if (c_.has_eval()) {
      eval_rows_ = session_.open_eval_rows();
      session_.check_eval_rows(*eval_rows_);
      eval_stream_ = std::make_unique<BatchStream>(c_.data, *eval_rows_, *session_.tokenizer,
                                                   session_.eval_stream());
    }
  }

  int run() {
    load_state();
    find_total();
    if (is_finished()) return already_finished();
    take_first_batch();
    prepare_run_dir(file_, start_, options_.overwrite);
    set_log_file(start_.dir / "log" / "rank-00000.log");
    give_up_later_checkpoints();
    open_run_files();
    const int signal = loop();
    if (signal != 0) return stopped_by(signal);
    finish();
    return 0;
  }

 private:
  // ------------------------------------------------------------------ start
  void load_state() {
    if (!start_.checkpoint) {
      if (c_.model.init == "random") {
        engine_.init_weights(static_cast<uint64_t>(c_.seed));
      } else {
        engine_.load_weights(session_.folder);
      }
      return;
    }
    const CheckpointReader reader(*start_.checkpoint);
    engine_.load_checkpoint(reader);
    const Json& state = reader.state();
    step_ = saved_step_ = state.at("step").as_int();
    updates_ = state.at("updates").as_int();
    position_ = {state.at("epoch").as_int(), state.at("position").as_int()};
    if (const Json* files = state.find("data_files"))
      position_.files = static_cast<uint64_t>(files->as_int());
    if (const Json* best = state.find("best_eval_loss"); best && best->is_number())
      best_eval_ = best->as_number();
    stream_.restore(position_);
    log_info("resumed from {} at step {}", start_.checkpoint->string(), step_);
  }

  // The last step, where it must be known: given, or counted for a schedule that needs the end.
  void find_total() {
    if (c_.train.steps) {
      total_ = *c_.train.steps;
      return;
    }
    constexpr int64_t kCheapToCount = 20000;
    if (schedule_needs_total(c_.train.schedule) || stream_.num_raw_rows() <= kCheapToCount) {
      total_ = c_.train.epochs * stream_.count_steps_per_epoch();
    }
  }

  bool is_finished() const {
    if (!std::filesystem::exists(start_.dir / "final" / "config.json") || options_.overwrite)
      return false;
    return step_ > 0 && is_past_end(position_.epoch);
  }

  bool is_past_end(int64_t epoch) const {
    return step_ >= total_ || (!c_.train.steps && epoch > c_.train.epochs);
  }

  // Rows that cannot be trained on are found here, before anything is written or given up.
  void take_first_batch() {
    if (is_past_end(position_.epoch)) return;
    stream_.next(batch_);
    has_batch_ = true;
  }

  int already_finished() {
    log_info("{} is finished at step {}: raise train.steps or train.epochs to go on",
             start_.dir.string(), step_);
    return 0;
  }

  // What is past the start is damaged, or of a run that went on otherwise; left there, it would
  // pass for newer than what this run saves.
  void give_up_later_checkpoints() {
    for (const std::filesystem::path& gone : remove_checkpoints_after(start_.dir, step_)) {
      log_warning("removed {}: the run starts at step {}", gone.string(), step_);
    }
  }

  void open_run_files() {
    const MetricsTail tail = cut_metrics_after(start_.dir / "metrics.jsonl", step_);
    time_before_ = tail.time_s;
    best_loss_ = tail.best_loss;
    final_loss_ = tail.last_loss;
    evaluated_ = tail.last_eval_step;
    if (!tail.is_epoch_told) epoch_loss_ = tail.epoch_loss;
    metrics_ = std::make_unique<MetricsWriter>(start_.dir / "metrics.jsonl");
    events_ = std::make_unique<EventWriter>(start_.dir / "events.jsonl", 0);
    sync_directory(start_.dir);
    saver_ = std::make_unique<Saver>(file_, session_, engine_, start_.dir, *metrics_, *events_);
    events_->write("started", {{"arena_bytes", Json(engine_.arena_bytes())},
                               {"step", Json(step_)},
                               {"threads", Json(engine_.pool()->num_threads())},
                               {"kernels", Json(engine_.plans().train.options.kernels->name)}});
    log_info("{}", file_.resolved());
    log_info("{} parameters, {} of memory, {} threads, kernels {}",
             format_count(static_cast<double>(count_parameters(*session_.model))),
             format_bytes(engine_.arena_bytes()), engine_.pool()->num_threads(),
             engine_.plans().train.options.kernels->name);
    progress_ = std::make_unique<Progress>(choose_progress_style(options_.quiet),
                                           total_ == kNoEnd ? 0 : total_, c_.train.log_every);
    began_ = last_ = Clock::now();
  }

  // ------------------------------------------------------------------ loop
  int loop() {
    while (!is_past_end(position_.epoch)) {
      Batch& batch = batch_;
      if (!std::exchange(has_batch_, false)) stream_.next(batch);
      if (is_past_end(batch.epoch)) break;
      name_repaired_rows();
      one_step(batch);
      position_ = batch.after;
      if (batch.is_epoch_end) end_epoch(batch.epoch);
      const bool last = step_ >= total_;
      if (!last && is_due(c_.train.eval_every, batch)) aside([&] { evaluate(); });
      if (!last && is_due(c_.checkpoint.every, batch)) aside([&] { save(); });
      if (signals_.received() != 0) return signals_.received();
    }
    return 0;
  }

  // The first ten rows that held bytes which are no UTF-8, as they come.
  void name_repaired_rows() {
    const std::vector<std::string>& rows = stream_.counters().first_repaired;
    if (num_named_ == rows.size()) return;
    progress_->clear();
    for (; num_named_ < rows.size(); ++num_named_) {
      log_warning("{}: bytes that are no UTF-8 were replaced", rows[num_named_]);
    }
  }

  bool is_due(int64_t every, const Batch& batch) const {
    return every > 0 ? step_ % every == 0 : batch.is_epoch_end;
  }

  void one_step(const Batch& batch) {
    StepMetrics line;
    line.step = ++step_;
    line.epoch = batch.epoch;
    line.tokens = batch.positions;
    line.target_tokens = batch.target_tokens;
    line.lr = learning_rate(c_.train.schedule, updates_, total_);
    const double sum = engine_.run_passes(batch);
    if (batch.target_tokens > 0) {
      line.loss = sum / static_cast<double>(batch.target_tokens);
      check_finite(*line.loss, "loss");
      line.grad_norm = engine_.update(batch, line.lr, updates_ + 1);
      check_finite(*line.grad_norm, "gradient norm");
      ++updates_;
      epoch_loss_.add(*line.loss, batch.target_tokens);
      if (!best_loss_ || *line.loss < *best_loss_) best_loss_ = line.loss;
      final_loss_ = line.loss;
    }
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    line.step_ms = seconds * 1e3;
    line.tokens_per_s = static_cast<double>(batch.tokens) / seconds;
    line.mem_bytes = peak_resident_bytes();
    line.time_s = time_before_ + seconds_since(began_);
    metrics_->write(line);
    progress_->step(line);
  }

  void check_finite(double v, const char* what) const {
    if (std::isfinite(v)) return;
    const auto saved = list_checkpoints(start_.dir);
    throw RunError(fmt::format("the {} of step {} is {}; the last checkpoint is {}", what, step_, v,
                               saved.empty() ? "none" : saved.back().string()),
                   "lower train.lr, set train.clip_norm, or look at the rows of that step");
  }

  // Work between steps does not count in their time.
  template <typename Fn>
  void aside(const Fn& fn) {
    progress_->clear();
    fn();
    last_ = Clock::now();
  }

  void end_epoch(int64_t epoch) {
    EpochMetrics line;
    line.epoch = epoch;
    line.mean_loss = epoch_loss_.mean();
    line.time_s = time_before_ + seconds_since(began_);
    metrics_->write(line);
    epoch_loss_ = {};
  }

  void evaluate() {
    const Clock::time_point start = Clock::now();
    double sum = 0;
    int64_t targets = 0;
    eval_stream_restart();
    while (eval_stream_ && eval_stream_->next(eval_batch_)) {
      sum += engine_.eval_loss_sum(eval_batch_);
      targets += eval_batch_.target_tokens;
    }
    if (!eval_stream_) return;
    EvalMetrics line;
    line.step = step_;
    if (targets > 0) line.eval_loss = sum / static_cast<double>(targets);
    line.eval_time_s = seconds_since(start);
    metrics_->write(line);
    evaluated_ = step_;
    if (!line.eval_loss) return;
    log_info("step {}: eval loss {:.5f}, perplexity {:.3f}", step_, *line.eval_loss,
             std::exp(*line.eval_loss));
    if (best_eval_ && *line.eval_loss >= *best_eval_) return;
    const std::optional<double> before = std::exchange(best_eval_, line.eval_loss);
    if (!saver_->save_best(state())) best_eval_ = before;  // the next better one is tried again
  }

  void eval_stream_restart() {
    if (eval_stream_) eval_stream_->restore({});
  }

  // ------------------------------------------------------------------ saving
  TrainState state() const { return {step_, updates_, position_, best_eval_}; }

  void save() {
    if (saved_step_ != step_ && saver_->save_step(state())) saved_step_ = step_;
  }

  int stopped_by(int signal) {
    progress_->clear();
    save();
    const char* name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
    if (saved_step_ != step_)
      throw RunError(fmt::format("{}: stopped at step {}, which could not be saved", name, step_));
    tell_data();
    events_->write("stopped", {{"signal", Json(name)}, {"step", Json(step_)}});
    log_info("{}: saved at step {}; the same command goes on from there", name, step_);
    return 128 + signal;
  }

  void finish() {
    progress_->clear();
    if (evaluated_ != step_) evaluate();
    if (step_ > 0) save();
    write_final_model(start_.dir / "final", engine_.weight_slices(), session_);
    events_->write("finished", {{"step", Json(step_)},
                                {"loss", final_loss_ ? Json(*final_loss_) : Json()},
                                {"skipped_steps", Json(step_ - updates_)}});
    tell_data();
    if (updates_ < step_)
      log_info("{} of {} steps had no target token and changed nothing", step_ - updates_, step_);
    draw_curve();
    log_info("finished {} steps in {}; final loss {}, best loss {}; model in {}", step_,
             format_duration(seconds_since(began_)), show(final_loss_), show(best_loss_),
             (start_.dir / "final").string());
  }

  void tell_data() {
    const std::string told = stream_.counters().describe();
    if (!told.empty()) log_info("data: {}", told);
  }

  // The curve as pictures beside the metrics, and on the terminal where a person may look.
  void draw_curve() {
    const LossCurve curve = read_loss_curve(start_.dir / "metrics.jsonl", c_.name);
    if (curve.train.size() < 2) return;
    if (has_pictures()) {
      draw_picture(curve, start_.dir / "loss.png");
      draw_picture(curve, start_.dir / "loss.svg");
    }
    if (choose_progress_style(options_.quiet) == ProgressStyle::kTerminal)
      log_info("{}", draw_terminal(curve));
  }

  static std::string show(const std::optional<double>& v) {
    return v ? fmt::format("{:.5f}", *v) : "none";
  }

  const RunFile& file_;
  const StopSignals& signals_;
  const RunConfig& c_;
  TrainOptions options_;
  RunStart start_;
  Session session_;
  std::unique_ptr<RowSource> rows_, eval_rows_;
  BatchStream stream_;
  std::unique_ptr<BatchStream> eval_stream_;
  Engine engine_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Progress> progress_;
  Batch batch_, eval_batch_;
  bool has_batch_ = false;  // the next one is in batch_ already
  size_t num_named_ = 0;    // of the repaired rows

  int64_t step_ = 0, updates_ = 0, saved_step_ = -1, evaluated_ = -1;
  int64_t total_ = kNoEnd;
  StreamState position_;
  std::optional<double> best_eval_, best_loss_, final_loss_;
  EpochLoss epoch_loss_;
  double time_before_ = 0;
  Clock::time_point began_, last_;
};

}  // namespace

int train(const RunFile& file, const TrainOptions& options) {
  const StopSignals signals;  // first: a signal at any later moment ends in order
  return Trainer(file, options, open_run_dir(file, options), signals).run();
}

}  // namespace weft
