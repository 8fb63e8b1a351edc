// train/stored_run.h: the run.yaml of a run directory: who wrote it, and whether it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace weft {

enum class StoredRun {
  kNone,    // nothing, or an empty file
  kWhole,   // as weft wrote it
  kCut,     // weft wrote it, but its end is missing or it is not YAML
  kNotOurs  // a user's; also one that was truncated before any of weft's marks
};

StoredRun find_stored_run(const std::filesystem::path& dir);
std::string read_stored_run(const std::filesystem::path& dir);

// events.jsonl exists and was written by weft.
bool has_events(const std::filesystem::path& dir);

// There is a run.yaml, an events.jsonl or a checkpoint written by weft.
bool is_run_dir(const std::filesystem::path& dir);

// UserError where a start in `dir` would replace a run.yaml that weft did not write, or `run_file`,
// which the user gave, in a directory that holds no run yet. run_file may be empty: unknown.
void check_run_yaml(const std::filesystem::path& dir, const std::filesystem::path& run_file);

}  // namespace weft
