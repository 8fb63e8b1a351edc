// graph/ops/scale.cpp: elements are independent; the gradient is the operation itself.
#include "graph/ops/scale.h"

#include <cmath>

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> scale_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Placement> place_scale(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

void scale_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  g->add(&kScaleOp, node, {dy}, {dx}, node.attr);
  g->flow(x, dx, node);
}

std::vector<InPlace> scale_in_place(const Node&) { return {{0, {0}}}; }

}  // namespace

const OpRule kScaleOp = {
    .name = "scale",
    .shapes = scale_shapes,
    .place = place_scale,
    .localize = localize_plain,
    .gradient = scale_gradient,
    .repeat = not_repeated,  // x would have to be kept instead, and is equally large
    .in_place = scale_in_place,
    .flops = no_flops,
};

Ref ops::scale(Builder& g, Ref x, float factor) {
  check_operands(std::isfinite(factor), &kScaleOp,
                 fmt::format("wanted a finite factor, got {}", factor));
  const Ref out = g.activation("scaled", g.shape(x), g.compute());
  g.add(&kScaleOp, {x}, {out}, ScaleAttr{factor});
  return out;
}

}  // namespace weft
