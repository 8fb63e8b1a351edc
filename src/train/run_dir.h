// train/run_dir.h: the folder of a run: what is there, what may go on, what is kept.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/run_config.h"

namespace weft {

struct TrainOptions {
  std::filesystem::path run_dir;  // empty: <storage>/<name>
  std::string resume = "auto";    // auto | never | a checkpoint's folder
  bool overwrite = false;
  bool quiet = false;
};

struct RunStart {
  std::filesystem::path dir;
  std::optional<std::filesystem::path> checkpoint;  // from which to go on
};

// <storage>/<name>, or what the user asks for.
std::filesystem::path run_dir_of(const RunConfig& config, const TrainOptions& options);

// Decides where the run starts, before anything is written. UserError where the directory holds
// another run, or checkpoints that --resume never would bury.
RunStart open_run_dir(const RunFile& file, const TrainOptions& options);

// Held while a run writes into its directory, and let go whatever ends the process. UserError where
// another process holds it.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_;
};

// Makes the folders, removes what --overwrite gives up, stores run.yaml.
void prepare_run_dir(const RunFile& file, const RunStart& start, bool overwrite);

}  // namespace weft
