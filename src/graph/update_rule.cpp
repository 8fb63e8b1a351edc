// graph/update_rule.cpp: how many elements the inputs of an update have.
#include "graph/update_rule.h"

#include "graph/builder.h"

namespace weft {

std::vector<Shape> update_shapes(const Graph& graph, const Node& node) {
  const std::vector<int64_t>& blocks = node.as<UpdateAttr>().blocks;
  const size_t plain = 3 + blocks.size();  // then the master
  check_operands(node.inputs.size() == plain || node.inputs.size() == plain + 1, node.op,
                 "an update has parameter, gradient, scale, its states and at most one master");
  const int64_t n = num_elements(graph[node.inputs[0]].shape);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const bool is_scale = i == 2, is_state = i > 2 && i < plain;
    const int64_t block = is_state ? blocks[i - 3] : 1;
    check_operands(is_scale || num_elements(graph[node.inputs[i]].shape) == (n + block - 1) / block,
                   node.op,
                   graph[node.inputs[i]].name + " does not have as many elements as its parameter");
  }
  return {};
}

}  // namespace weft
