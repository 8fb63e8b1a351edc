// graph/ops/rope.cpp: in place, forward and backward.
#include "graph/ops/rope.h"

#include "base/error.h"
#include "graph/gradients.h"

namespace weft {
namespace {

std::vector<Shape> rope_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Placement> place_rope(const Node& node, const std::vector<Placement>& in) {
  return {place_along(node, in, {0})};
}

void localize_rope(Localizer* l, const Node& node) {
  l->push_plain(node, RopeAttr{local_heads(l, node.inputs[0], node.as<RopeAttr>().heads)});
}

void rope_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  std::vector<Ref> inputs = node.inputs;
  inputs[0] = dy;
  g->add(&kRopeInverseOp, node, std::move(inputs), {dx}, node.attr);
  g->flow(x, dx, node);
}

std::vector<InPlace> rope_in_place(const Node&) { return {{0, {0}, true}}; }

}  // namespace

const OpRule kRopeOp = {
    .name = "rope",
    .shapes = rope_shapes,
    .place = place_rope,
    .localize = localize_rope,
    .gradient = rope_gradient,
    .repeat = not_repeated,
    .in_place = rope_in_place,
    .flops = no_flops,
};

const OpRule kRopeInverseOp = {
    .name = "rope_inverse",
    .shapes = rope_shapes,
    .place = place_rope,
    .localize = localize_rope,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = rope_in_place,
    .flops = no_flops,
};

Ref ops::rope(Builder& g, Ref qkv, Ref cosine, Ref sine, Ref positions, HeadShape h) {
  check_operands(
      g.shape(qkv).back() == h.columns(), &kRopeOp,
      fmt::format("wanted {} columns of q, k and v, got {}", h.columns(), to_string(g.shape(qkv))));
  check_operands(h.head_dim % 2 == 0, &kRopeOp,
                 fmt::format("wanted an even head dim, got {}", h.head_dim));
  const Ref out = g.activation("qkv", g.shape(qkv), g.compute());
  std::vector<Ref> inputs = {qkv, cosine, sine};
  if (positions) inputs.push_back(positions);
  g.add(&kRopeOp, std::move(inputs), {out}, RopeAttr{h});
  return out;
}

}  // namespace weft
