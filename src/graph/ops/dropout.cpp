// graph/ops/dropout.cpp: elements are independent, and depend on their column in the logical
// tensor.
#include "graph/ops/dropout.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

constexpr int64_t kMostSites = 1 << 16;  // kernel/dropout.h has 16 bits for them

std::vector<Shape> dropout_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Placement> place_dropout(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

void localize_dropout(Localizer* l, const Node& node) {
  DropoutAttr attr = node.as<DropoutAttr>();
  const Ref x = node.inputs[0];
  if (l->placement(x).is_cut(2)) {
    const int64_t here = l->local_shape(x).back(), all = l->logical()[x].shape.back();
    check_operands(here * l->mesh().tp == all && stacked_widths(*l, x).size() == 1, &kDropoutOp,
                   fmt::format("the {} of {} columns of {} that a rank has are not a run of equal "
                               "size; drop parts of a stacked product one by one",
                               here, all, l->logical()[x].name));
    attr.first_column = l->mesh().rank * here;
  }
  l->push_plain(node, attr);
}

void dropout_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kDropoutOp, node, {dy, node.inputs[1]}, {dx}, node.attr);
  g->flow(x, dx, node);
}

std::vector<InPlace> dropout_in_place(const Node&) { return {{0, {0}}}; }

}  // namespace

const OpRule kDropoutOp = {
    .name = "dropout",
    .shapes = dropout_shapes,
    .place = place_dropout,
    .localize = localize_dropout,
    .gradient = dropout_gradient,
    // x would be kept instead, and is as large. (After GELU x itself would be computed again: there
    // one value more is kept.)
    .repeat = not_repeated,
    .in_place = dropout_in_place,
    .flops = no_flops,
};

Ref ops::dropout(Builder& g, Ref x, const DropoutRule& dropout) {
  const Op op = &kDropoutOp;
  const Shape s = g.shape(x);
  check_operands(dropout.rate >= 0 && dropout.rate < 1, op,
                 fmt::format("wanted a dropout in [0, 1), got {}", dropout.rate));
  if (dropout.rate == 0) return x;
  check_operands(s.size() == 3, op, fmt::format("wanted (B, T, C), got {}", to_string(s)));
  check_operands(dropout.rows && g.shape(dropout.rows) == Shape{s[0], 2}, op,
                 fmt::format("x {} needs every row's epoch and index, got {}", to_string(s),
                             dropout.rows ? to_string(g.shape(dropout.rows)) : "none"));
  check_operands(
      dropout.site >= 0 && dropout.site < kMostSites, op,
      fmt::format("dropout supports up to {} sites, got site {}", kMostSites, dropout.site));
  const Ref out = g.activation("dropped", s, g.compute());
  g.add(op, {x, dropout.rows}, {out}, DropoutAttr{dropout.rate, dropout.seed, dropout.site});
  return out;
}

}  // namespace weft
