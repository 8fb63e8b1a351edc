// train/stored_run.h: the run.yaml of a run directory: whose it is, and whether it is whole.
#pragma once

#include <filesystem>
#include <string>

namespace weft {

enum class StoredRun {
  kNone,    // nothing, or an empty file
  kWhole,   // as weft wrote it
  kCut,     // weft wrote it, and its end is missing or it is no YAML
  kNotOurs  // of a person; also one that was cut before anything that marks it as weft's
};

StoredRun find_stored_run(const std::filesystem::path& dir);
std::string read_stored_run(const std::filesystem::path& dir);

// events.jsonl is there, and weft wrote it.
bool has_events(const std::filesystem::path& dir);

// A run.yaml, an events.jsonl or a checkpoint of weft is there.
bool is_run_dir(const std::filesystem::path& dir);

// UserError where a start in `dir` would replace a run.yaml that weft did not write, or `run_file`,
// which the user gave, in a directory that is no run's yet. run_file may be empty: not known.
void check_run_yaml(const std::filesystem::path& dir, const std::filesystem::path& run_file);

}  // namespace weft
