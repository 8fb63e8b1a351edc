// graph/ops/geglu.cpp: columns are independent, and the gradient can also compute the value.
#include "graph/ops/geglu.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> shapes(const Graph& graph, const Node& node) {
  Shape shape = graph[node.inputs[0]].shape;
  shape.back() /= 2;
  return {shape};
}

std::vector<Shape> grad_shapes(const Graph& graph, const Node& node) {
  std::vector<Shape> made = {graph[node.inputs[1]].shape};
  if (node.outputs.size() > 1) made.push_back(graph[node.inputs[0]].shape);
  return made;
}

std::vector<Placement> place(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

std::vector<Placement> place_grad(const Node& node, const std::vector<Placement>& in) {
  return std::vector<Placement>(node.outputs.size(), place_along(node, in, {0, 1}));
}

void gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kGegluGradOp, node, {dy, x}, {dx});
  g->flow(x, dx, node);
}

bool repeat(const Node& forward, Ref, Ref again, Node* made) {
  *made = {forward.op, forward.inputs, {again}, forward.attr, forward.layer};
  return true;
}

std::vector<InPlace> grad_in_place(const Node&) { return {{0, {1}}, {1, {0}}}; }

}  // namespace

const OpRule kGegluOp = {
    .name = "geglu",
    .shapes = shapes,
    .place = place,
    .localize = localize_plain,
    .gradient = gradient,
    .repeat = repeat,
    .repeated_by = &kGegluGradOp,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kGegluGradOp = {
    .name = "geglu_grad",
    .shapes = grad_shapes,
    .place = place_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = grad_in_place,
    .flops = no_flops,
};

Ref ops::geglu(Builder& g, Ref gate_up) {
  const Shape s = g.shape(gate_up);
  check_operands(s.size() == 3 && s[2] % 2 == 0, &kGegluOp,
                 fmt::format("wanted gate and up of one width, got {}", to_string(s)));
  const Ref out = g.activation("geglu", {s[0], s[1], s[2] / 2}, g.compute());
  g.add(&kGegluOp, {gate_up}, {out});
  return out;
}

}  // namespace weft
