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

// Decides where the run starts, before anything is written. UserError where the directory holds
// another run, or checkpoints that --resume never would bury.
RunStart open_run_dir(const RunFile& file, const TrainOptions& options);

// Makes the folders, removes what --overwrite gives up, stores run.yaml.
void prepare_run_dir(const RunFile& file, const RunStart& start, bool overwrite);

}  // namespace weft
