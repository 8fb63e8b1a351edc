// graph/ops/geglu.cpp: gelu(gate) * up as a gated activation.
#include "graph/ops/geglu.h"

#include "graph/gated_rule.h"

namespace weft {

const OpRule kGegluOp = gated_rule("geglu", &kGegluGradOp);
const OpRule kGegluGradOp = gated_grad_rule("geglu_grad");

Ref ops::geglu(Builder& g, Ref gate_up) { return add_gated(g, &kGegluOp, gate_up); }

}  // namespace weft
