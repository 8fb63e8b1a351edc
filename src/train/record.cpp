// train/record.cpp: adds times to lines, and reads back what earlier starts recorded.
#include "train/record.h"

#include <filesystem>
#include <system_error>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "track/memory.h"
#include "track/plot.h"

namespace weft {

RunRecord::RunRecord(const RecordOptions& options) : options_(options) {
  began_ = last_ = Clock::now();
  if (options.saved) restore(*options.saved);
  if (!options.is_writer) return;
  if (!options.saved) read_back();
  metrics_ = std::make_unique<MetricsWriter>(options.dir / "metrics.jsonl");
  events_ = std::make_unique<EventWriter>(options.dir / "events.jsonl", 0);
  sync_directory(options.dir);
  progress_ = std::make_unique<Progress>(choose_progress_style(options.quiet), options.total_steps,
                                         options.log_every);
}

void RunRecord::read_back() {
  const MetricsTail tail =
      cut_metrics_after(options_.dir / "metrics.jsonl", options_.step, options_.keeps_cut);
  time_before_ = tail.time_s;
  best_loss_ = tail.best_loss;
  final_loss_ = tail.last_loss;
  // Lines may be missing, for example where the checkpoint is of another run.
  if (tail.last_step == options_.step) last_lr_ = tail.last_lr;
  evaluated_ = tail.last_eval_step;
  if (!tail.is_epoch_reported) epoch_loss_ = tail.epoch_loss;
}

Json RunRecord::save() const {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  Json kept;
  if (metrics_) {
    std::error_code unknown;
    const auto bytes = std::filesystem::file_size(options_.dir / "metrics.jsonl", unknown);
    kept.set("metrics_bytes", Json(unknown ? int64_t{-1} : static_cast<int64_t>(bytes)));
  }
  kept.set("time_s", Json(total_seconds()));
  kept.set("epoch_loss", epoch_loss_.to_json());
  kept.set("best_loss", number(best_loss_));
  kept.set("final_loss", number(final_loss_));
  kept.set("last_lr", number(last_lr_));
  kept.set("evaluated", Json(evaluated_));
  return kept;
}

void RunRecord::restore(const Json& saved) {
  const auto number = [&](const char* name) {
    const Json& v = saved.at(name);
    return v.is_number() ? std::optional(v.as_number()) : std::nullopt;
  };
  time_before_ = saved.at("time_s").as_number();
  epoch_loss_ = EpochLoss::from_json(saved.at("epoch_loss"));
  best_loss_ = number("best_loss");
  final_loss_ = number("final_loss");
  last_lr_ = number("last_lr");
  evaluated_ = saved.at("evaluated").as_int();
  if (!options_.is_writer) return;
  cut_to_bytes(options_.dir / "metrics.jsonl", saved.at("metrics_bytes").as_int());
}

double RunRecord::seconds() const { return seconds_since(began_); }

double RunRecord::total_seconds() const { return time_before_ + seconds(); }

void RunRecord::step(StepMetrics line, int64_t tokens) {
  if (line.loss) {
    epoch_loss_.add(*line.loss, line.target_tokens);
    if (!best_loss_ || *line.loss < *best_loss_) best_loss_ = line.loss;
    final_loss_ = line.loss;
  }
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  if (!metrics_) return;
  line.step_ms = seconds * 1e3;
  line.tokens_per_s = static_cast<double>(tokens) / seconds;
  line.mem_bytes = options_.device_bytes > 0 ? options_.device_bytes : peak_resident_bytes();
  line.time_s = total_seconds();
  metrics_->write(line);
  progress_->step(line);
}

void RunRecord::end_epoch(int64_t epoch) {
  const EpochMetrics line{epoch, epoch_loss_.mean(), total_seconds()};
  if (metrics_) metrics_->write(line);
  epoch_loss_ = {};
}

void RunRecord::evaluation(EvalMetrics line) {
  evaluated_ = line.step;
  if (metrics_) metrics_->write(line);
}

void RunRecord::event(std::string_view name, const Json::Object& more) {
  const std::lock_guard lock(events_mutex_);
  if (events_) events_->write(name, more);
}

void RunRecord::try_event(std::string_view name, const Json::Object& more) {
  try {
    event(name, more);
  } catch (const RunError& e) {
    log_error("event \"{}\" could not be written: {}", name, e.what());
  }
}

void RunRecord::show_part(std::string_view what, double part, double seconds) {
  if (progress_) progress_->part(what, part, seconds);
}

void RunRecord::clear_progress() {
  if (progress_) progress_->clear();
}

void RunRecord::sync() {
  if (metrics_) metrics_->sync();
}

void RunRecord::draw_curve(const std::string& title) {
  if (!metrics_) return;
  try {
    draw(title);
  } catch (const Error& e) {  // a missing picture is no reason to fail a run
    log_warning("the loss curve could not be drawn: {}", e.what());
  } catch (const std::system_error& e) {
    log_warning("the loss curve could not be drawn: {}", e.what());
  }
}

void RunRecord::draw(const std::string& title) const {
  const LossCurve curve = read_loss_curve(options_.dir / "metrics.jsonl", title);
  if (curve.train.size() < 2) return;
  if (has_pictures()) {
    draw_picture(curve, options_.dir / "loss.png");
    draw_picture(curve, options_.dir / "loss.svg");
  }
  if (choose_progress_style(options_.quiet) == ProgressStyle::kTerminal)
    log_info("{}", draw_terminal(curve));
}

}  // namespace weft
