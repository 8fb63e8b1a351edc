// exec/update_binding.h: how the updates of all optimizers are bound.
//
// On the CPU an update is one call per parameter: threads divide its elements, and with zero1 and
// zero2 the next bucket's updates run while the last one's parameters are gathered. On a GPU one
// launch per parameter would cost more than small parameters need, so all parameters with the same
// dtypes are updated in one launch (exec/device_finish.h).
#pragma once

#include "exec/op_binding.h"
#include "kernel/device_kernels.h"

namespace weft {

// The inputs of an update's node, in their places.
struct UpdateInputs {
  UpdateItem item;
  UpdateTypes types;
  const float* scale;  // of gradients: NaN where the step is skipped
};
UpdateInputs update_inputs(const View& view, const Node& node);

// The binding of an update: everything but its kernels is the same for every optimizer. item.decay
// says whether the parameter decays.
OpBinding update_binding(Op op, UpdateForms forms);

}  // namespace weft
