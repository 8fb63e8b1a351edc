// train/run_dir.cpp: a second start of the same run goes on; another run is refused.
#include "train/run_dir.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/replace_folder.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

void check_same_run(const RunFile& file, const fs::path& dir) {
  const fs::path stored = dir / "run.yaml";
  if (!fs::exists(stored)) return;
  const RunChanges changes = compare_runs(read_file(stored, 1 << 20), file.resolved());
  if (!changes.refused.empty()) {
    std::string list;
    for (const std::string& change : changes.refused) list += "\n    " + change;
    throw UserError(fmt::format("{} holds another run:{}", dir.string(), list),
                    "give the run another name, undo the change, or start anew with --overwrite");
  }
  for (const std::string& change : changes.allowed)
    log_info("changed since the last start: {}", change);
}

}  // namespace

RunStart open_run_dir(const RunFile& file, const TrainOptions& options) {
  const RunConfig& c = file.config();
  RunStart start;
  start.dir = options.run_dir.empty() ? fs::path(c.storage) / c.name : options.run_dir;
  require(!fs::exists(start.dir) || fs::is_directory(start.dir), "{} is not a folder",
          start.dir.string());
  if (options.overwrite) return start;
  const bool has_checkpoints = !list_checkpoints(start.dir).empty();
  if (options.resume == "never") {
    if (has_checkpoints) {
      throw UserError(
          fmt::format("{} has checkpoints, and --resume never would bury them", start.dir.string()),
          "add --overwrite to give them up, or give the run another name");
    }
    check_same_run(file, start.dir);  // its metrics and its model would be written over
    return start;
  }
  check_same_run(file, start.dir);
  if (options.resume == "auto") {
    start.checkpoint = find_sound_checkpoint(start.dir);
    return start;
  }
  require(is_checkpoint(options.resume), "--resume {}: no whole checkpoint is there",
          options.resume);
  start.checkpoint = options.resume;
  return start;
}

void prepare_run_dir(const RunFile& file, const RunStart& start, bool overwrite) {
  recover_replaced(start.dir / "checkpoints" / "best");
  recover_replaced(start.dir / "final");
  if (overwrite) {
    // Only what a run writes; a folder that holds anything else keeps it.
    for (const char* name : {"checkpoints", "final", "log", "metrics.jsonl", "events.jsonl",
                             "run.yaml", "loss.png", "loss.svg", "tensor_hashes.jsonl"}) {
      fs::remove_all(start.dir / name);
    }
  }
  std::error_code bad;
  fs::create_directories(start.dir / "log", bad);
  fs::create_directories(start.dir / "checkpoints", bad);
  if (bad) throw RunError(fmt::format("cannot make {}: {}", start.dir.string(), bad.message()));
  write_file_atomic(start.dir / "run.yaml", file.resolved());
}

}  // namespace weft
