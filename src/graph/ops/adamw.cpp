// graph/ops/adamw.cpp: changes parameter and states where they lie.
#include "graph/ops/adamw.h"

#include "graph/builder.h"

namespace weft {
namespace {

// All of a parameter's elements: gradient and states too.
std::vector<Shape> shapes(const Graph& graph, const Node& node) {
  const int64_t n = num_elements(graph[node.inputs[0]].shape);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const bool is_scale = i == 2;
    check_operands(is_scale || num_elements(graph[node.inputs[i]].shape) == n, node.op,
                   graph[node.inputs[i]].name + " has not as many elements as its parameter");
  }
  return {};
}

}  // namespace

const OpRule kAdamwOp = {
    .name = "adamw",
    .traits = {.is_update = true},
    .shapes = shapes,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

}  // namespace weft
