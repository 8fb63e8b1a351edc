// train/run_dir.h: the folder of a run: what is there, what may go on, what is kept.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/list.h"
#include "config/run_config.h"
#include "train/run_lock.h"

namespace weft {

struct TrainOptions {
  std::filesystem::path run_dir;   // empty: <storage>/<name>
  std::filesystem::path run_file;  // as the user gave it: it is not written over; empty: not known
  std::string resume = "auto";     // auto | never | a checkpoint's folder | a run directory
  bool overwrite = false;
  bool quiet = false;
};

struct RunStart {
  std::filesystem::path dir;
  std::optional<std::filesystem::path> checkpoint;  // from which to go on
  bool is_of_other_run = false;          // the checkpoint: its metrics and its best are not ours
  std::optional<int64_t> finished_step;  // nothing to do, though the last checkpoint is gone
  // Of the rank that decides:
  std::vector<DamagedFolder> damaged;  // passed over; renamed when the run begins
  bool is_other_training = false;      // than the one before: --resume PATH, or keys have changed
  std::shared_ptr<RunLock> lock;       // null: no directory yet, or it cannot be written
};

// <storage>/<name>, or what the user asks for.
std::filesystem::path run_dir_of(const RunConfig& config, const TrainOptions& options);

// Decides where the run starts, under the run's lock, before anything is written. UserError where
// the directory holds another run, checkpoints that --resume never or another run's checkpoint
// would bury, a final/ or a run.yaml that is not the run's, what --overwrite would delete though no
// run wrote it; where checkpoints were and no sound one is left; where a start at step 0 would
// replace a trained final/; where the checkpoint was trained with other keys, or is past the end
// that the run file asks for. RunError where what is there cannot be read. A directory that is not
// there is not made, and so not locked: prepare_run_dir looks again.
RunStart open_run_dir(const RunFile& file, const TrainOptions& options);

// Takes the lock where it is not held yet (UserError where another process has trained there
// meanwhile; or where metrics.jsonl cannot be read back: then nothing has changed); makes the
// folders, removes what --overwrite gives up and what broken attempts left, renames damaged
// checkpoints and all without COMMITTED, moves those past `step` to abandoned/, and best/ where the
// start does not know it, stores run.yaml. To be called when nothing else can keep the run from
// starting.
void prepare_run_dir(const RunFile& file, RunStart* start, int64_t step, bool overwrite);

}  // namespace weft
