// graph/update_rule.h: what the updates of all optimizers have in common.
#pragma once

#include "graph/op_rule.h"

namespace weft {

// Inputs of an update: parameter, gradient, scale, the states in the optimizer's order, [master].
// It updates all but gradient and scale in place, and has no outputs.
struct UpdateAttr {
  bool decay = true;
  std::vector<int64_t>
      blocks;  // by state: elements of the parameter that share one element of the state
};

std::vector<Shape> update_shapes(const Graph& graph, const Node& node);

constexpr OpRule update_rule(const char* name) {
  return {
      .name = name,
      .traits = {.is_update = true},
      .shapes = update_shapes,
      .place = no_placement,
      .localize = not_localized,
      .gradient = not_differentiable,
      .repeat = not_repeated,
      .in_place = not_in_place,
      .flops = no_flops,
  };
}

}  // namespace weft
