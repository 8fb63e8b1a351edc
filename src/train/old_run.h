// train/old_run.h: what --overwrite deletes in a run directory, and where it refuses.
#pragma once

#include <filesystem>

namespace weft {

// UserError where something has a name that --overwrite deletes, but no run.yaml or events.jsonl
// written by weft shows that a run made it.
void check_old_run(const std::filesystem::path& dir);

// Deletes what a run writes, by name; everything else stays. Each is renamed first: an interrupted
// deletion leaves no partial checkpoint that looks damaged.
void remove_old_run(const std::filesystem::path& dir);

// Deletes what an interrupted remove_old_run had renamed.
void remove_renamed(const std::filesystem::path& dir);

}  // namespace weft
