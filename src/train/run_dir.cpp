// train/run_dir.cpp: a second start of the same run goes on; another run is refused.
#include "train/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

fs::path run_dir_of(const RunConfig& c, const TrainOptions& options) {
  return options.run_dir.empty() ? fs::path(c.storage) / c.name : options.run_dir;
}

RunStart open_run_dir(const RunFile& file, const TrainOptions& options) {
  const RunConfig& c = file.config();
  RunStart start;
  start.dir = run_dir_of(c, options);
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

RunLock::RunLock(const fs::path& dir) {
  std::error_code bad;
  fs::create_directories(dir, bad);
  const fs::path file = dir / ".lock";
  fd_ = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw RunError(fmt::format("cannot write into {}: {}", dir.string(), std::strerror(errno)));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(fd_);
  throw UserError(fmt::format("another process is training in {}", dir.string()),
                  "wait for it, stop it, or give this run another name or --run-dir");
}

RunLock::~RunLock() { ::close(fd_); }

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
