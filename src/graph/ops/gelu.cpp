// graph/ops/gelu.cpp: elements are independent, and the gradient can also compute the value.
#include "graph/ops/gelu.h"

#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> gelu_shapes(const Graph& graph, const Node& node) {
  return std::vector<Shape>(node.outputs.size(), graph[node.inputs[0]].shape);
}

std::vector<Placement> place_gelu(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

std::vector<Placement> place_gelu_grad(const Node& node, const std::vector<Placement>& in) {
  return std::vector<Placement>(node.outputs.size(), place_along(node, in, {0, 1}));
}

void gelu_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kGeluGradOp, node, {dy, x}, {dx}, node.attr);
  g->flow(x, dx, node);
}

bool repeat_gelu(const Node& forward, Ref, Ref again, Node* made) {
  *made = {forward.op, forward.inputs, {again}, forward.attr, forward.layer};
  return true;
}

std::vector<InPlace> gelu_grad_in_place(const Node&) { return {{0, {1, 0}}, {1, {0, 1}}}; }

}  // namespace

const OpRule kGeluOp = {
    .name = "gelu",
    .shapes = gelu_shapes,
    .place = place_gelu,
    .localize = localize_plain,
    .gradient = gelu_gradient,
    .repeat = repeat_gelu,
    .repeated_by = &kGeluGradOp,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kGeluGradOp = {
    .name = "gelu_grad",
    .shapes = gelu_shapes,
    .place = place_gelu_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = gelu_grad_in_place,
    .flops = no_flops,
};

Ref ops::gelu(Builder& g, Ref x, bool approximate_tanh) {
  const Ref y = g.activation("gelu", g.shape(x), g.compute());
  g.add(&kGeluOp, {x}, {y}, GeluAttr{approximate_tanh});
  return y;
}

}  // namespace weft
