// train/trainer.h: the loop of `weft train`.
#pragma once

#include <functional>
#include <memory>

#include "comm/nccl/nccl_library.h"
#include "config/run_config.h"
#include "net/shm_world.h"
#include "planning/backend.h"
#include "train/run_dir.h"

namespace weft {

// This process's place among the ranks of a run.
struct RankPlace {
  int rank = 0;
  int threads = 1;
  std::shared_ptr<ShmWorld> world;  // null: alone
  // For tests: another device than the run file's, shared by the ranks, or with its own group.
  std::function<Backend()> open_device = nullptr;
  NcclLibrary* nccl = nullptr;
};

// One rank, to the end or to a signal (train/signals.h). Returns the exit code: 0 done (or already
// finished), 128 + N after signal N with the state saved. Where a peer or a GPU fails, the other
// ranks are aborted before this one exits.
int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place);

}  // namespace weft
