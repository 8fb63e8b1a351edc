// graph/ops/geglu.h: gelu(gate) * up, GELU in its tanh form.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// geglu: gate_up -> h. geglu_grad: dh, gate_up -> dgate_up, [recomputed h].
extern const OpRule kGegluOp, kGegluGradOp;

namespace ops {
Ref geglu(Builder& g, Ref gate_up);  // (B, T, 2 F) -> (B, T, F)
}
}  // namespace weft
