// train/trainer.h: the loop of `weft train`.
#pragma once

#include "train/run_config.h"
#include "train/run_dir.h"

namespace weft {

// Trains to the end, or to a signal. Gives the exit code: 0 done (or already finished), 143 and
// 130 after SIGTERM and SIGINT with the state saved.
int train(const RunFile& file, const TrainOptions& options);

}  // namespace weft
