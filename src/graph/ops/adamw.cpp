// graph/ops/adamw.cpp: changes parameter and states where they lie.
#include "graph/ops/adamw.h"

namespace weft {

const OpRule kAdamwOp = {
    .name = "adamw",
    .traits = {.is_update = true},
    .shapes = shapes_as_given,
    .place = no_placement,
    .localize = not_localized,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

}  // namespace weft
