// train/run_status.h: the state of a run, live or after its end, read from its directory alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/run_tail.h"

namespace weft {

struct RunStatus {
  std::string dir;
  std::string state;  // starting, running, recovering, stopping, stopped, finished, failed
  std::string cause;  // of a failure, or of the last recovery; empty: none
  std::string note;   // what could not be known, and why; empty: nothing
  bool is_live = false;
  std::optional<Json> file;  // .status.json, where it is of the run's last session
  double file_age_s = 0;     // of a live run of this machine
  SpeedTail speed;
  EventTail events;
  std::optional<int64_t> total_steps;

  std::optional<double> seconds_left() const;  // of a run that goes on
  Json to_json() const;
};

// Whether there is a run, or one that is about to begin.
bool holds_run(const std::filesystem::path& dir);
// Writes nothing. UserError where the folder holds no run; RunError where the system cannot read.
RunStatus read_run_status(const std::filesystem::path& dir);

}  // namespace weft
