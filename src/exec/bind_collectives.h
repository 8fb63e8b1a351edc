// exec/bind_collectives.h: collectives, and sums in fixed order, as calls.
#pragma once

#include "exec/executor.h"
#include "exec/memory_ops.h"
#include "exec/node_args.h"

namespace weft {

using NodeCall = std::function<void(const StepScalars&)>;

// What the ops point to must outlive the calls.
NodeCall bind_collective(const View& v, const Node& node, const Mesh& mesh, const MemoryOps& ops);
NodeCall bind_accumulate(const View& v, const Node& node, const MemoryOps& ops);

}  // namespace weft
