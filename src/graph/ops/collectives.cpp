// graph/ops/collectives.cpp: sums keep their shape; the inserting pass sets that of cut or joined
// buckets.
#include "graph/ops/collectives.h"

namespace weft {
namespace {

std::vector<InPlace> sum_in_place(const Node&) { return {{0, {0}}}; }

constexpr OpRule collective(const char* name,
                            std::vector<Shape> (*shapes)(const Graph&, const Node&),
                            std::vector<InPlace> (*in_place)(const Node&)) {
  return {
      .name = name,
      .traits = {.is_collective = true},
      .shapes = shapes,
      .place = no_placement,
      .localize = not_localized,
      .gradient = not_differentiable,
      .repeat = not_repeated,
      .in_place = in_place,
      .flops = no_flops,
  };
}

}  // namespace

const OpRule kAllReduceOp = collective("all_reduce", shape_of_first_input, sum_in_place);
const OpRule kReduceScatterOp = collective("reduce_scatter", shapes_as_given, not_in_place);
const OpRule kAllGatherOp = collective("all_gather", shapes_as_given, not_in_place);
const OpRule kAllToAllOp = collective("all_to_all", shapes_as_given, not_in_place);

const OpRule kAccumulateOp = {
    .name = "accumulate",
    .shapes = shape_of_first_input,
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
