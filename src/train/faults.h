// train/faults.h: applies a fault (planning/fault.h) in a run.
#pragma once

#include "data/batches.h"
#include "planning/fault.h"
#include "train/engine.h"

namespace weft {

void fault_before_passes(const Fault& fault, int64_t step, const RunConfig& config,
                         const Ranks& ranks, Batch* batch);
void fault_before_update(const Fault& fault, int64_t step, const Engine& engine,
                         const Ranks& ranks);
void fault_after_update(const Fault& fault, int64_t step, const Engine& engine, const Ranks& ranks);

}  // namespace weft
