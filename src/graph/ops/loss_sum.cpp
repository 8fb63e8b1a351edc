// graph/ops/loss_sum.cpp: an exact sum does not depend on order.
#include "graph/ops/loss_sum.h"

#include "base/exact_sum.h"
#include "graph/localizer.h"

namespace weft {
namespace {

std::vector<Shape> loss_sum_shapes(const Graph&, const Node&) { return {{ExactSum::kLimbs}}; }

std::vector<Placement> place_loss_sum(const Node&, const std::vector<Placement>& in) {
  return {in[0].is_cut(0) ? partial() : in[0]};
}

}  // namespace

const OpRule kLossSumOp = {
    .name = "loss_sum",
    .shapes = loss_sum_shapes,
    .place = place_loss_sum,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

}  // namespace weft
