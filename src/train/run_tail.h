// train/run_tail.h: what the last lines of metrics.jsonl and events.jsonl say.
//
// For readers beside a run: bounded, and whatever is not as a run writes it is skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

// The complete lines of the last max_bytes of a file; none where there is no file. RunError where
// the system cannot read it.
std::vector<std::string> read_last_lines(const std::filesystem::path& path, int64_t max_bytes);

// A value that is there and of that kind.
std::optional<int64_t> find_int(const Json& object, std::string_view key);
std::optional<double> find_number(const Json& object, std::string_view key);
std::optional<std::string> find_text(const Json& object, std::string_view key);

struct SpeedTail {
  std::optional<int64_t> step, epoch;
  std::optional<double> loss, eval_loss;
  std::optional<double> step_s, tokens_per_s;  // means of the last steps
};
SpeedTail read_speed(const std::filesystem::path& metrics);

struct EventTail {
  std::optional<Json> last, started;
  std::optional<Json> end;         // after `started`: finished, stopped, failed or rank failed
  std::optional<Json> checkpoint;  // the last one of a step
  int64_t num_deaths = 0;          // of ranks and nodes, survived
};
EventTail read_events(const std::filesystem::path& events);

}  // namespace weft
