// graph/ops/swiglu.h: silu(gate) * up.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// swiglu: gate_up -> h. swiglu_grad: dh, gate_up -> dgate_up, [recomputed h].
extern const OpRule kSwigluOp, kSwigluGradOp;

namespace ops {
Ref swiglu(Builder& g, Ref gate_up);  // (B, T, 2 F) -> (B, T, F)
}
}  // namespace weft
