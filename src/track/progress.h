// track/progress.h: what a person sees while training: one line that is rewritten on a terminal,
// plain lines elsewhere, nothing with --quiet. It goes to standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "track/run_files.h"

namespace weft {

enum class ProgressStyle { kQuiet, kPlain, kTerminal };
ProgressStyle choose_progress_style(bool quiet);  // by whether standard error is a terminal

std::string format_duration(double seconds);  // "42 s", "3:05 min", "2:10 h"
std::string format_bytes(int64_t bytes);      // "1.2 GiB", "5 MiB", "426 KiB", "0 B"
std::string format_count(double count);       // "12,345"

class Progress {
 public:
  // total_steps: 0 where unknown. log_every: steps between plain lines; 0: no lines.
  Progress(ProgressStyle style, int64_t total_steps, int64_t log_every, int fd = 2);
  ~Progress();  // leaves the terminal on a fresh line

  void step(const StepMetrics& line);
  // Work between steps: "evaluating: 37 %  12 s left", after `seconds` of it.
  void part(std::string_view what, double part, double seconds);
  // Clears the line from the terminal, so that other lines can be written; the next step redraws
  // it.
  void clear();

 private:
  std::string text(const StepMetrics& line) const;
  std::string bar(int64_t step, int cells) const;
  void put(std::string_view text) const;

  ProgressStyle style_;
  int64_t total_steps_, log_every_;
  int fd_;
  bool is_shown_ = false;
  bool has_colour_;
  double step_ms_ = 0;        // smoothed
  double shown_at_ = -1;      // time_s of the last line on the terminal
  double part_shown_at_ = 0;  // seconds of the work between steps
};

}  // namespace weft
