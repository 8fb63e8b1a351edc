// train/old_run.h: what --overwrite deletes of a run directory, and where it deletes nothing.
#pragma once

#include <filesystem>

namespace weft {

// UserError where something has a name that --overwrite deletes, but neither a run.yaml nor an
// events.jsonl that weft wrote says that a run made it.
void check_old_run(const std::filesystem::path& dir);

// Deletes what a run writes, by name; everything else stays. Each is renamed first: a deletion cut
// short leaves no half checkpoint that looks damaged.
void remove_old_run(const std::filesystem::path& dir);

// Deletes what a remove_old_run that was cut short had renamed.
void remove_renamed(const std::filesystem::path& dir);

}  // namespace weft
