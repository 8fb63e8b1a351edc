// graph/ops/gelu.h: GELU, with erf or with its approximation by tanh.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

struct GeluAttr {
  bool approximate_tanh = false;  // Hugging Face's gelu_new and gelu_pytorch_tanh; else its gelu
};
// gelu: x -> y. gelu_grad: dy, x -> dx, [recomputed y].
extern const OpRule kGeluOp, kGeluGradOp;

namespace ops {
Ref gelu(Builder& g, Ref x, bool approximate_tanh);  // of x's shape
}
}  // namespace weft
