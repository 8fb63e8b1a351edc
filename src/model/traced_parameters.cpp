// model/traced_parameters.cpp: traces one row of one position.
#include "model/traced_parameters.h"

namespace weft {

std::vector<ParameterSpec> traced_parameters(const Model& model,
                                             const std::function<void(ParameterSpec*)>& complete) {
  Graph graph;
  model.trace_loss(&graph, {.source_positions = 1});
  std::vector<ParameterSpec> specs;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    ParameterSpec spec{graph[r].name, graph[r].shape, {}, {}};
    complete(&spec);
    specs.push_back(std::move(spec));
  }
  return specs;
}

InitRule default_init(const ParameterSpec& spec, double std) {
  InitRule init;
  init.kind = spec.name.ends_with(".bias") ? InitRule::Kind::kZeros
              : spec.shape.size() == 1     ? InitRule::Kind::kOnes
                                           : InitRule::Kind::kNormal;
  init.std = std;
  return init;
}

}  // namespace weft
