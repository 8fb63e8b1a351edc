// graph/ops/collectives.cpp: their shapes are those of the pass that puts them.
#include "graph/ops/collectives.h"

namespace weft {
namespace {

std::vector<InPlace> sum_in_place(const Node&) { return {{0, {0}}}; }

constexpr OpRule collective(const char* name, std::vector<InPlace> (*in_place)(const Node&)) {
  return {
      .name = name,
      .traits = {.is_collective = true},
      .shapes = shapes_as_given,
      .place = no_placement,
      .localize = not_localized,
      .gradient = not_differentiable,
      .repeat = not_repeated,
      .in_place = in_place,
      .flops = no_flops,
  };
}

}  // namespace

const OpRule kAllReduceOp = collective("all_reduce", sum_in_place);
const OpRule kReduceScatterOp = collective("reduce_scatter", not_in_place);
const OpRule kAllGatherOp = collective("all_gather", not_in_place);
const OpRule kAllToAllOp = collective("all_to_all", not_in_place);

const OpRule kAccumulateOp = {
    .name = "accumulate",
    .shapes = shapes_as_given,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

Node data_collective(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs, int layer) {
  Node node{op, std::move(inputs), std::move(outputs), CollectiveAttr{.axis = Axis::kData}, layer};
  node.run.async = true;
  return node;
}

}  // namespace weft
