// graph/ops/grad_norm.cpp: nodes of the finish list.
#include "graph/ops/grad_norm.h"

#include "tensor/cell.h"
#include "tensor/loss_scale.h"

namespace weft {
namespace {

std::vector<Shape> squares_shapes(const Graph& graph, const Node& node) {
  const int64_t n = num_elements(graph[node.inputs[0]].shape);
  return {{(n + kNormCell - 1) / kNormCell}};
}

std::vector<Shape> norm_shapes(const Graph&, const Node& node) {
  std::vector<Shape> made = {{1}, {1}};
  if (node.outputs.size() > 2) made.push_back({kLossScaleWords});
  return made;
}

}  // namespace

const OpRule kSquaresOp = {
    .name = "squares",
    .shapes = squares_shapes,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kNormOp = {
    .name = "norm",
    .shapes = norm_shapes,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

}  // namespace weft
