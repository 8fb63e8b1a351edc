// train/faults.h: a fault (train/fault.h) at work in a run.
#pragma once

#include "data/batches.h"
#include "train/engine.h"
#include "train/fault.h"

namespace weft {

void fault_before_passes(const Fault& fault, int64_t step, const RunConfig& config,
                         const Ranks& ranks, Batch* batch);
void fault_before_update(const Fault& fault, int64_t step, const Engine& engine,
                         const Ranks& ranks);
void fault_after_update(const Fault& fault, int64_t step, const Engine& engine, const Ranks& ranks);

}  // namespace weft
