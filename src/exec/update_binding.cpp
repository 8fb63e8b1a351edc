// exec/update_binding.cpp: one call per parameter; on a GPU all at the first.
#include "exec/update_binding.h"

#include <cmath>

#include "base/error.h"
#include "exec/device_finish.h"
#include "graph/update_rule.h"

namespace weft {

UpdateInputs update_inputs(const View& v, const Node& node) {
  const UpdateAttr& attr = node.as<UpdateAttr>();
  const size_t num_states = attr.blocks.size();
  ensure(num_states <= kMaxUpdateStates,
         fmt::format("[{}] has {} states, but kernels support at most {}", op_name(node.op),
                     num_states, kMaxUpdateStates));
  const Value& p = v.value(node.inputs[0]);
  UpdateInputs u{};
  u.types = {p.dtype, v.value(node.inputs[1]).dtype};
  u.scale = v.at<float>(node.inputs[2]);
  u.item.n = num_elements(p.shape);
  u.item.p = v.at(node.inputs[0]);
  u.item.grad = v.at(node.inputs[1]);
  u.item.decay = attr.decay;
  u.types.num_states = static_cast<int>(num_states);
  for (size_t i = 0; i < num_states; ++i) {
    u.types.state_dtypes[i] = v.value(node.inputs[3 + i]).dtype;
    u.item.states[i] = v.at(node.inputs[3 + i]);
  }
  u.types.has_master = node.inputs.size() > 3 + num_states;
  if (u.types.has_master) u.item.master = v.at<float>(node.inputs.back());
  return u;
}

namespace {

NodeCall bind_update(const BindContext& b, const Node& node) {
  if (b.kernels.device) {
    return [finish = b.finish, is_first = b.finish->take_update()](const StepScalars&) {
      if (is_first) finish->update();
    };
  }
  return [call = binding_of(node.op).update.one, u = update_inputs(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) {
    if (std::isnan(*u.scale)) return;  // a skipped step
    call(k, *c, u, *u.scale, s.optimizer);
  };
}

}  // namespace

OpBinding update_binding(Op op, UpdateForms forms) {
  return {op,           no_workspace,  bind_update, no_device_limits, cost_of_bytes, no_wire,
          suits_device, no_shortening, forms};
}

}  // namespace weft
