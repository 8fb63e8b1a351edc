// train/trainer.h: the loop of `weft train`.
#pragma once

#include <memory>

#include "net/shm_world.h"
#include "train/run_config.h"
#include "train/run_dir.h"

namespace weft {

// Where this process stands among the ranks of a run.
struct RankPlace {
  int rank = 0;
  int threads = 1;
  std::shared_ptr<ShmWorld> world;  // null: alone
};

// One rank, to the end or to a signal. Gives the exit code: 0 done (or already finished), 143 and
// 130 after SIGTERM and SIGINT with the state saved.
int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place);

}  // namespace weft
