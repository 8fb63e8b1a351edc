// graph/autodiff.cpp: the gradient rules of the operations, walked from the loss to the embedding.
#include "graph/autodiff.h"

#include <algorithm>

#include "base/error.h"
#include "base/exact_sum.h"
#include "graph/gradients.h"
#include "graph/op_rule.h"
#include "graph/ops/loss_sum.h"
#include "tensor/names.h"

namespace weft {
namespace {

bool has_gradient(const Gradients& gradients, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](Ref out) { return out && gradients.of(out); });
}

bool makes(const Node& node, Ref value) {
  return node.op->traits.is_loss && node.outputs[0] == value;
}

}  // namespace

void add_loss_sum(Graph* graph, Ref losses) {
  Ref sum = graph->add({names::kLossSum, {ExactSum::kLimbs}, Dtype::kI64, ValueKind::kResult});
  graph->pass.push_back({&kLossSumOp, {losses}, {sum}, {}, -1});
}

void add_backward(Graph* graph, Ref losses, Dtype grad_dtype) {
  bool any = false;
  for (Ref p : graph->of_kind(ValueKind::kParameter)) any = any || !(*graph)[p].frozen;
  require(any, "model.freeze covers every parameter: nothing is left to train");
  Gradients gradients(graph, grad_dtype);
  const std::vector<Node> forward = std::move(graph->pass);
  graph->pass.clear();
  // The loss node is replaced by one that computes losses and gradient together.
  for (const Node& node : forward) {
    if (makes(node, losses)) {
      node.op->gradient(&gradients, node);
    } else {
      graph->pass.push_back(node);
    }
  }
  for (size_t i = forward.size(); i-- > 0;) {
    if (makes(forward[i], losses) || !has_gradient(gradients, forward[i])) continue;
    forward[i].op->gradient(&gradients, forward[i]);
  }
  add_loss_sum(graph, losses);
}

}  // namespace weft
