// cmd/export_optimizer.h: the optimizer of a checkpoint, as torch's programs need it to go on.
#pragma once

#include <optional>

#include "checkpoint/export_torch.h"

namespace weft {

// From the run file and the counters that a checkpoint of weft records; none for other models.
std::optional<TorchOptimizer> stored_optimizer(const LogicalModel& model);

}  // namespace weft
