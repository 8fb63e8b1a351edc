// train/trainer.h: the loop of `weft train`.
#pragma once

#include "config/run_config.h"
#include "train/rank_place.h"
#include "train/run_dir.h"

namespace weft {

// One rank, to the end or to a signal (train/signals.h). Returns the exit code: 0 done (or already
// finished), 128 + N after signal N with the state saved. Where a peer or a GPU fails, the other
// ranks are aborted before this one exits.
int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place);

}  // namespace weft
