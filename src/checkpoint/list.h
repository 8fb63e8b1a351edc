// checkpoint/list.h: the checkpoints of a run directory: which are sound, which may be deleted,
// which are set aside.
//
// A folder's name says what may be done with it (docs/design/0009): step-N is a checkpoint,
// step-N.writing and step-N.removing are ours to delete, step-N.damaged and abandoned/ are never
// touched. A folder that cannot be read is a RunError everywhere here, never treated as empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

std::filesystem::path checkpoint_path(const std::filesystem::path& run_dir, int64_t step);

// The N of step-N as weft writes it (eight digits or more); -1: another name.
int64_t step_of_name(const std::string& name);

// Complete checkpoints (COMMITTED present) below run_dir/checkpoints, newest last.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_dir);

struct DamagedFolder {
  std::filesystem::path path;
  std::string reason;
};
struct CheckpointSearch {
  std::optional<std::filesystem::path> sound;  // the newest that has all its files
  std::vector<DamagedFolder> damaged;          // newer ones, and every step-N without COMMITTED
  Json state;                                  // state.json of the sound one
};
// Checks all but the bytes of slices, which are checked where they are read; those that a reader
// has found damaged since are given as `known` and skipped. kEveryByte: for a checkpoint that is
// only named, and not read next. Changes nothing; RunError where a checkpoint cannot be read.
enum class CheckDepth { kStructure, kEveryByte };
CheckpointSearch find_sound_checkpoint(const std::filesystem::path& run_dir,
                                       const std::vector<DamagedFolder>& known = {},
                                       CheckDepth depth = CheckDepth::kStructure);

struct SoundBest {
  std::filesystem::path path;
  int64_t step;
};
// best/, where it exists and all its checksums match: every byte is read. RunError where it cannot
// be read.
std::optional<SoundBest> find_sound_best(const std::filesystem::path& run_dir);
// best/, where it exists and is not sound, with the reason.
std::optional<DamagedFolder> find_damaged_best(const std::filesystem::path& run_dir);

// Every step-N without COMMITTED.
std::vector<DamagedFolder> list_uncommitted(const std::filesystem::path& run_dir);

// What earlier starts set aside: step-N.damaged and what is in abandoned/, as names below
// checkpoints/.
std::vector<std::string> list_set_aside(const std::filesystem::path& run_dir);

// Renames step-N to step-N.damaged (or .damaged-2 ...); the new path.
std::filesystem::path set_aside_damaged(const std::filesystem::path& folder);

// Moves every complete step-N with N > step to abandoned/, newest first, and step-N of that step
// too unless it is `start` itself. Returns the new paths.
std::vector<std::filesystem::path> abandon_checkpoints_after(const std::filesystem::path& run_dir,
                                                             int64_t step,
                                                             const std::filesystem::path& start);

// Moves best/ to abandoned/best (or best-2 ...) where the checkpoint `start` does not know it: it
// has a later step, another best evaluation loss, or an unknown one; or where `start` is empty: a
// run that starts at step 0 has none. Returns the new path, if it moved.
std::optional<std::filesystem::path> abandon_best(const std::filesystem::path& run_dir,
                                                  const std::filesystem::path& start);

// Deletes every step-N.writing and step-N.removing: only while holding the run's lock and not
// saving.
void remove_unfinished(const std::filesystem::path& run_dir);

// Deletes all but the newest `keep` (at least one stays) of those up to step `newest`, and
// leftovers of earlier failed attempts. A damaged checkpoint does not count as kept; the check
// covers everything but the bytes of slices. best/ and everything after `newest` stay. A checkpoint
// is renamed to step-N.removing first, so that an interrupted deletion does not look like damage.
void prune_checkpoints(const std::filesystem::path& run_dir, int64_t keep,
                       int64_t newest = std::numeric_limits<int64_t>::max());

}  // namespace weft
