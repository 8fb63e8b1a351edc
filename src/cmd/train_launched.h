// cmd/train_launched.h: weft train as one rank that torchrun, mpirun or the like started.
#pragma once

#include "config/run_config.h"
#include "launch/launcher_place.h"
#include "train/trainer.h"

namespace weft {

// What the launcher decides, as words for --set.
std::vector<std::string> launcher_keys(const LauncherPlace& place);

// Until the run ends, or a rank fails. UserError where the launch does not fit the run file.
int train_launched(RunFile& file, TrainOptions options, bool is_forced, const LauncherPlace& place);

}  // namespace weft
