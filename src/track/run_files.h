// track/run_files.h: metrics.jsonl and events.jsonl (docs/contract.md, Run directory).
//
// Numbers have 17 digits: equal text means equal bits. A line reaches the system in one write
// before the call returns; a full disk is a RunError. Writing a metrics line allocates nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace weft {

struct StepMetrics {
  int64_t step = 0;                  // from 1
  int64_t epoch = 0;                 // from 1
  std::optional<double> loss;        // none: the batch had no label
  std::optional<double> grad_norm;   // none: and hence no update
  std::optional<double> loss_scale;  // of fp16
  double lr = 0;
  int64_t tokens = 0;  // positions fed, padding included
  int64_t target_tokens = 0;
  double step_ms = 0;
  double tokens_per_s = 0;  // without padding
  int64_t mem_bytes = 0;
  double time_s = 0;
};

struct EpochMetrics {
  int64_t epoch = 0;
  std::optional<double> mean_loss;  // weighted by target tokens
  double time_s = 0;
};

struct EvalMetrics {
  int64_t step = 0;
  std::optional<double> eval_loss;
  double eval_time_s = 0;
  Json::Object more;  // further keys, after these
};

// The running mean of an epoch. Live values and values read back from the file go through the same
// code, so that a resumed run has the bits of an uninterrupted one.
class EpochLoss {
 public:
  void add(double loss, int64_t target_tokens);
  std::optional<double> mean() const;  // weighted by target tokens; none where there were none

  Json to_json() const;
  static EpochLoss from_json(const Json& kept);

 private:
  double sum_ = 0;  // of loss * target_tokens
  int64_t targets_ = 0;
};

// What a resumed run learns from the lines that are kept.
struct MetricsTail {
  int64_t last_step = 0;
  double time_s = 0;
  std::optional<double> best_loss, last_loss, last_lr;
  int64_t last_eval_step = -1;     // -1: no evaluation
  int64_t epoch = 0;               // of the last step line
  EpochLoss epoch_loss;            // of that epoch
  bool is_epoch_reported = false;  // that epoch has its line already
};

// Cuts metrics.jsonl before the first line that is past `step`, and a torn last line; a missing
// file counts as empty. keeps_cut: the lines are appended to metrics.jsonl.abandoned.
MetricsTail cut_metrics_after(const std::filesystem::path& path, int64_t step,
                              bool keeps_cut = false);

// UserError with the line, and what to do, where a line up to `step` is malformed: what
// cut_metrics_after would throw once a start has begun to write.
void check_metrics(const std::filesystem::path& path, int64_t step);

// Cuts a file to its first `bytes`; RunError where it is shorter.
void cut_to_bytes(const std::filesystem::path& path, int64_t bytes);

// Removes an unterminated last line, left by a process that died while writing.
void cut_torn_line(const std::filesystem::path& path);

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& path);  // appends
  void write(const StepMetrics& line);
  void write(const EpochMetrics& line);
  void write(const EvalMetrics& line);
  void sync() { file_.sync(); }  // flushes to disk

 private:
  FileWriter file_;
};

std::string event_time();  // now: UTC, ISO 8601

class EventWriter {
 public:
  EventWriter(const std::filesystem::path& path, int rank);  // appends
  // {"event","time","rank","host", ...more}. time: of event_time(); "": now.
  void write(std::string_view event, const Json::Object& more = {}, const std::string& time = "");

 private:
  FileWriter file_;
  int rank_;
  std::string host_;
};

}  // namespace weft
