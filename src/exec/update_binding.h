// exec/update_binding.h: how the updates of all optimizers are bound.
//
// On the CPU an update is a call per parameter: threads share out its elements, and with zero1 and
// zero2 the next bucket's updates run while the last one's parameters are gathered. On a GPU a
// launch per parameter would cost more than small parameters take, so all parameters of one set of
// types are updated in one launch (exec/device_finish.h).
#pragma once

#include "exec/op_binding.h"
#include "kernel/device_kernels.h"

namespace weft {

// The inputs of an update's node, in their places.
struct UpdateInputs {
  UpdateItem item;
  UpdateTypes types;
  const float* scale;  // of gradients: NaN where the step does not count
};
UpdateInputs update_inputs(const View& view, const Node& node);

// The binding of an update: all but its forms is the same for every optimizer. `one` finds in
// item.decay whether the parameter decays.
OpBinding update_binding(Op op, UpdateForms forms);

}  // namespace weft
