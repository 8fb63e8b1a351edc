// graph/gated_rule.cpp: shapes, placement and gradient of gated activations.
#include "graph/gated_rule.h"

#include "base/error.h"
#include "graph/gradients.h"

namespace weft {

std::vector<Shape> gated_shapes(const Graph& graph, const Node& node) {
  Shape shape = graph[node.inputs[0]].shape;
  shape.back() /= 2;
  return {shape};
}

std::vector<Shape> gated_grad_shapes(const Graph& graph, const Node& node) {
  std::vector<Shape> made = {graph[node.inputs[1]].shape};
  if (node.outputs.size() > 1) made.push_back(graph[node.inputs[0]].shape);
  return made;
}

std::vector<Placement> place_gated(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

std::vector<Placement> place_gated_grad(const Node& node, const std::vector<Placement>& in) {
  return std::vector<Placement>(node.outputs.size(), place_along(node, in, {0, 1}));
}

void gated_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(node.op->repeated_by, node, {dy, x}, {dx});
  g->flow(x, dx, node);
}

bool repeat_gated(const Node& forward, Ref, Ref again, Node* made) {
  *made = {forward.op, forward.inputs, {again}, forward.attr, forward.layer};
  return true;
}

std::vector<InPlace> gated_grad_in_place(const Node&) { return {{0, {1}}, {1, {0}}}; }

Ref add_gated(Builder& g, Op op, Ref gate_up) {
  const Shape s = g.shape(gate_up);
  check_operands(s.size() == 3 && s[2] % 2 == 0, op,
                 fmt::format("wanted gate and up of one width, got {}", to_string(s)));
  const Ref out = g.activation(op->name, {s[0], s[1], s[2] / 2}, g.compute());
  g.add(op, {gate_up}, {out});
  return out;
}

}  // namespace weft
