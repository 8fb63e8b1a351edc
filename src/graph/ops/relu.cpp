// graph/ops/relu.cpp: elements are independent. The gradient reads y, so that y may overwrite x:
// only what the next product keeps anyway is kept, and nothing is worth recomputing.
#include "graph/ops/relu.h"

#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Placement> place(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

std::vector<Placement> place_grad(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0, 1})};
}

void gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], y = node.outputs[0], dy = g->of(y);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kReluGradOp, node, {dy, y}, {dx});
  g->flow(x, dx, node);
}

std::vector<InPlace> in_place(const Node&) { return {{0, {0}}}; }
std::vector<InPlace> grad_in_place(const Node&) { return {{0, {0, 1}}}; }

}  // namespace

const OpRule kReluOp = {
    .name = "relu",
    .shapes = shapes,
    .place = place,
    .localize = localize_plain,
    .gradient = gradient,
    .repeat = not_repeated,
    .in_place = in_place,
    .flops = no_flops,
};

const OpRule kReluGradOp = {
    .name = "relu_grad",
    .shapes = shapes,
    .place = place_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = grad_in_place,
    .flops = no_flops,
};

Ref ops::relu(Builder& g, Ref x) {
  const Ref y = g.activation("relu", g.shape(x), g.compute());
  g.add(&kReluOp, {x}, {y});
  return y;
}

}  // namespace weft
