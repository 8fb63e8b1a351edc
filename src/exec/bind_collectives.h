// exec/bind_collectives.h: collectives, and sums in fixed order, as calls.
#pragma once

#include "exec/executor.h"
#include "exec/node_args.h"

namespace weft {

using NodeCall = std::function<void(const StepScalars&)>;

NodeCall bind_collective(const View& v, const Node& node, const Mesh& mesh);
NodeCall bind_accumulate(const View& v, const Node& node, const Kernels& kernels,
                         const Context* context, Device* device);

}  // namespace weft
