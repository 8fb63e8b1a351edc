// train/run_history.h: what events.jsonl records of a run whose checkpoints are gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace weft {

struct RunHistory {
  bool has_committed = false;              // a step's checkpoint was once committed
  std::optional<int64_t> finished_step;    // the last start finished there
  std::optional<int64_t> finished_epochs;  // and had been asked for these, instead of steps
  std::string started_from;                // the checkpoint of the last start; empty: step 0
};

// Empty where there is no events.jsonl; RunError where it cannot be read. Torn lines are parsed as
// far as possible.
RunHistory read_history(const std::filesystem::path& run_dir);

}  // namespace weft
