// train/run_dir.h: the folder of a run: what it holds, what may be resumed, what is kept.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/list.h"
#include "config/run_config.h"
#include "train/local_copy.h"
#include "train/remote_run.h"
#include "train/run_lock.h"

namespace weft {

struct TrainOptions {
  std::filesystem::path run_dir;   // empty: <storage>/<name>
  std::filesystem::path run_file;  // as the user gave it: never overwritten; empty: unknown
  std::string resume = "auto";     // auto | never | a checkpoint's folder | a run directory
  bool overwrite = false;
  bool convert_states = false;  // where train.precision or train.master_weights has changed
  bool quiet = false;
};

struct RunStart {
  std::filesystem::path dir;
  std::optional<std::filesystem::path> checkpoint;  // to resume from
  bool is_of_other_run = false;          // the checkpoint: its metrics and its best are not ours
  std::optional<int64_t> finished_step;  // nothing to do, although the last checkpoint is gone
  // On the rank that decides:
  std::vector<DamagedFolder> damaged;        // skipped; renamed when the run starts
  std::vector<DamagedFolder> found_damaged;  // by ranks that read their slices
  std::string resume;                        // TrainOptions::resume, as a path of this machine
  bool is_other_training = false;            // than before: --resume PATH, or keys have changed
  std::shared_ptr<RunLock> lock;             // null: no directory yet, or it cannot be written
  std::shared_ptr<RemoteRun> remote;         // null: the run is in `dir` alone
  std::shared_ptr<LocalCopy> copy;           // of what --resume s3://... named; null: it is local
};

// Where the run is in an object store: its address; else empty.
std::string run_address_of(const RunConfig& config, const TrainOptions& options);
// <storage>/<name>, or --run-dir; the mirror of a run in an object store.
std::filesystem::path run_dir_of(const RunConfig& config, const TrainOptions& options);

// Decides where the run starts, under the run's lock, before anything is written. UserError where
// the directory holds another run, checkpoints that --resume never or another run's checkpoint
// would discard, a foreign final/ or run.yaml, or files that --overwrite would delete though no run
// wrote them; where there were checkpoints and no sound one is left; where a start at step 0 would
// replace a trained final/; where the checkpoint was trained with other keys, or is past the run
// file's end. RunError where the directory cannot be read. A missing directory is not created, and
// so not locked: prepare_run_dir checks again.
RunStart open_run_dir(const RunFile& file, const TrainOptions& options);

// For a process that takes the place of one that died while it held the lock: takes the lock, also
// that of an object store, and leaves everything as it is.
RunStart reopen_run_dir(const RunFile& file, const TrainOptions& options);
// What a process that died while writing may have left half done.
void tidy_run_dir(const std::filesystem::path& dir);

// Decides again, where a rank has found start.checkpoint damaged while it read its slices. Errors
// as above; a checkpoint that --resume PATH named is refused.
RunStart choose_again(const RunFile& file, const TrainOptions& options, RunStart start,
                      const std::string& damage);

// Takes the lock where it is not held yet (UserError where another process has trained there
// meanwhile; or where metrics.jsonl cannot be read back: then nothing has changed); creates the
// folders, removes what --overwrite discards and what failed attempts left, renames damaged
// checkpoints and all without COMMITTED, moves those past `step` to abandoned/, and best/ where the
// start does not know it, stores run.yaml. Call it when nothing else can prevent the run from
// starting.
void prepare_run_dir(const RunFile& file, RunStart* start, int64_t step, bool overwrite);

// Whether another process has taken the run over, as far as the heartbeats know. On the rank that
// holds its locks; false on others.
bool has_lost_run(const RunStart& start);
// RunError where it has; asks the storage first where the last heartbeat is too old.
void check_run_is_ours(const RunStart& start);

}  // namespace weft
