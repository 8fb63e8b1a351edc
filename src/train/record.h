// train/record.h: what a run reports: metrics, events, the progress line, the curve.
//
// Rank 0 of a run writes them; a record on another rank accepts the same calls and writes nothing.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "track/progress.h"
#include "track/run_files.h"

namespace weft {

struct RecordOptions {
  std::filesystem::path dir;
  bool is_writer = true;
  bool quiet = false;
  int64_t step = 0;         // at which the run starts: later lines are removed
  bool keeps_cut = false;   // they are kept in metrics.jsonl.abandoned: a user went back
  int64_t total_steps = 0;  // 0: not known
  int64_t log_every = 1;
  int64_t device_bytes = 0;  // GPU memory that the run has allocated; 0: none
  // What save() returned at that step: everything is as it was then. None: the lines are read.
  std::optional<Json> saved;
};

class RunRecord {
 public:
  explicit RunRecord(const RecordOptions& options);

  // Fills in the times; `tokens` without padding.
  void step(StepMetrics line, int64_t tokens);
  void end_epoch(int64_t epoch);
  void evaluation(EvalMetrics line);
  // Events and sync(): also from the thread that saves.
  void event(std::string_view name, const Json::Object& more = {});
  // The same; one that cannot be written is only logged.
  void try_event(std::string_view name, const Json::Object& more = {});
  void show_part(std::string_view what, double part, double seconds);  // of work between steps
  void clear_progress();
  void sync();  // flushes to disk
  Json save() const;
  // The curve as pictures next to the metrics, and on the terminal where there is one. A warning
  // where it cannot be drawn.
  void draw_curve(const std::string& title);

  // Work between steps does not count in their time.
  void restart_clock() { last_ = Clock::now(); }
  int64_t last_eval_step() const { return evaluated_; }
  std::optional<double> last_lr() const { return last_lr_; }  // of the step before this start
  std::optional<double> final_loss() const { return final_loss_; }
  std::optional<double> best_loss() const { return best_loss_; }
  double seconds() const;        // since this start
  double total_seconds() const;  // of the whole run, as the lines count them

 private:
  void read_back();
  void restore(const Json& saved);
  void draw(const std::string& title) const;

  using Clock = std::chrono::steady_clock;
  RecordOptions options_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::mutex events_mutex_;
  std::unique_ptr<Progress> progress_;
  EpochLoss epoch_loss_;
  std::optional<double> best_loss_, final_loss_, last_lr_;
  int64_t evaluated_ = -1;
  double time_before_ = 0;
  Clock::time_point began_, last_;
};

}  // namespace weft
