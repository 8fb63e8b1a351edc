// graph/ops/swiglu.cpp: silu(gate) * up as a gated activation.
#include "graph/ops/swiglu.h"

#include "graph/gated_rule.h"

namespace weft {

const OpRule kSwigluOp = gated_rule("swiglu", &kSwigluGradOp);
const OpRule kSwigluGradOp = gated_grad_rule("swiglu_grad");

Ref ops::swiglu(Builder& g, Ref gate_up) { return add_gated(g, &kSwigluOp, gate_up); }

}  // namespace weft
