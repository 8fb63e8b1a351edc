// graph/gated_rule.h: what gated activations, act(gate) * up, have in common.
//
// Their columns are independent, and their gradient can also compute their value: the operation's
// `repeated_by` is its gradient.
#pragma once

#include "graph/builder.h"
#include "graph/localizer.h"
#include "graph/op_rule.h"

namespace weft {

// For gated_rule and gated_grad_rule. gate_up -> h. Gradient: dh, gate_up -> dgate_up,
// [recomputed h].
std::vector<Shape> gated_shapes(const Graph& graph, const Node& node);
std::vector<Placement> place_gated(const Node& node, const std::vector<Placement>& in);
void gated_gradient(Gradients* g, const Node& node);
bool repeat_gated(const Node& forward, Ref value, Ref again, Node* made);
std::vector<Shape> gated_grad_shapes(const Graph& graph, const Node& node);
std::vector<Placement> place_gated_grad(const Node& node, const std::vector<Placement>& in);
std::vector<InPlace> gated_grad_in_place(const Node& node);

constexpr OpRule gated_rule(const char* name, Op gradient) {
  return {
      .name = name,
      .shapes = gated_shapes,
      .place = place_gated,
      .localize = localize_plain,
      .gradient = gated_gradient,
      .repeat = repeat_gated,
      .repeated_by = gradient,
      .in_place = not_in_place,
      .flops = no_flops,
  };
}

constexpr OpRule gated_grad_rule(const char* name) {
  return {
      .name = name,
      .shapes = gated_grad_shapes,
      .place = place_gated_grad,
      .localize = localize_plain,
      .gradient = not_differentiable,
      .repeat = not_repeated,
      .in_place = gated_grad_in_place,
      .flops = no_flops,
  };
}

Ref add_gated(Builder& g, Op op, Ref gate_up);  // (B, T, 2 F) -> (B, T, F)

}  // namespace weft
