// graph/ops/grad_norm.cpp: nodes of the finish list; optim/ gives them their shapes.
#include "graph/ops/grad_norm.h"

namespace weft {

const OpRule kSquaresOp = {
    .name = "squares",
    .shapes = shapes_as_given,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kNormOp = {
    .name = "norm",
    .shapes = shapes_as_given,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

}  // namespace weft
