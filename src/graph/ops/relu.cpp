// graph/ops/relu.cpp: elements are independent. The gradient reads y, so that y may overwrite x:
// only what the next product keeps anyway is kept, and nothing is worth recomputing.
#include "graph/ops/relu.h"

#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> relu_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Placement> place_relu(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

std::vector<Placement> place_relu_grad(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0, 1})};
}

void relu_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], y = node.outputs[0], dy = g->of(y);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kReluGradOp, node, {dy, y}, {dx});
  g->flow(x, dx, node);
}

std::vector<InPlace> relu_in_place(const Node&) { return {{0, {0}}}; }
std::vector<InPlace> relu_grad_in_place(const Node&) { return {{0, {0, 1}}}; }

}  // namespace

const OpRule kReluOp = {
    .name = "relu",
    .shapes = relu_shapes,
    .place = place_relu,
    .localize = localize_plain,
    .gradient = relu_gradient,
    .repeat = not_repeated,
    .in_place = relu_in_place,
    .flops = no_flops,
};

const OpRule kReluGradOp = {
    .name = "relu_grad",
    .shapes = relu_shapes,
    .place = place_relu_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = relu_grad_in_place,
    .flops = no_flops,
};

Ref ops::relu(Builder& g, Ref x) {
  const Ref y = g.activation("relu", g.shape(x), g.compute());
  g.add(&kReluOp, {x}, {y});
  return y;
}

}  // namespace weft
