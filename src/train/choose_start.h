// train/choose_start.h: the checkpoint from which a run resumes, or why it cannot.
#pragma once

#include "config/run_changes.h"
#include "train/resume_path.h"
#include "train/run_dir.h"

namespace weft {

// Each takes the keys that changed since the last start; where the directory has no run.yaml
// (has_stored false) these are the keys that changed since the checkpoint, filled in here. All
// throw a UserError where the checkpoint's own record of its keys is of another training, or where
// the run file's end is before it.
struct StartQuestion {
  const RunFile& file;
  bool has_stored = false;
  RunChanges changes;
  bool converts = false;  // TrainOptions::convert_states
};

// The newest sound checkpoint of start->dir, which is none of start->found_damaged; or
// finished_step; or neither: step 0.
void choose_newest(StartQuestion* question, RunStart* start);

// What --resume PATH named.
void choose_named(NamedStart named, StartQuestion* question, RunStart* start);

// --resume never: UserError where that would discard trained results.
void check_nothing_buried(const std::filesystem::path& dir);

}  // namespace weft
