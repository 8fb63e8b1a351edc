// graph/ops/add.cpp: in place of either addend.
#include "graph/ops/add.h"

#include "base/error.h"
#include "graph/builder.h"
#include "graph/gradients.h"
#include "graph/localizer.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

std::vector<Shape> add_shapes(const Graph& graph, const Node& node) {
  const Shape &a = graph[node.inputs[0]].shape, &b = graph[node.inputs[1]].shape;
  check_operands(a == b, node.op, fmt::format("adds {} and {}", to_string(a), to_string(b)));
  return {a};
}

std::vector<Placement> place_add(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0, 1})};
}

// Columns of both addends must be the same ones of the logical values.
void localize_add(Localizer* l, const Node& node) {
  const Ref a = node.inputs[0], b = node.inputs[1];
  check_operands(!l->placement(a).is_cut(2) || stacked_widths(*l, a) == stacked_widths(*l, b),
                 &kAddOp,
                 fmt::format("{} and {} are products of differently stacked weights, of which a "
                             "rank has other columns; add them before they are stacked",
                             l->logical()[a].name, l->logical()[b].name));
  l->push_plain(node, node.attr);
}

// One value flows into both addends, so nodes of either may read it last: whether one of them works
// in its place is for the memory plan to decide, which knows its last reader.
void add_gradient(Gradients* g, const Node& node) {
  const Ref dy = g->of(node.outputs[0]);
  if (!dy) return;
  g->flow(node.inputs[0], dy, node);
  g->flow(node.inputs[1], dy, node);
}

std::vector<InPlace> add_in_place(const Node&) { return {{0, {0, 1}}}; }

}  // namespace

const OpRule kAddOp = {
    .name = "add",
    .shapes = add_shapes,
    .place = place_add,
    .localize = localize_add,
    .gradient = add_gradient,
    .repeat = not_repeated,
    .in_place = add_in_place,
    .flops = no_flops,
};

Ref ops::add(Builder& g, Ref a, Ref b) {
  const Ref out = g.activation("sum", g.shape(a), g.compute());
  g.add(&kAddOp, {a, b}, {out});
  return out;
}

}  // namespace weft
