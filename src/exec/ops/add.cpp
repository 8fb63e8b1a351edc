// exec/ops/add.cpp: sums as calls.
#include "graph/ops/add.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_add(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& out = v.value(node.outputs[0]);
  const AddArgs a{num_elements(out.shape), out.dtype, v.at(node.inputs[0]), v.at(node.inputs[1]),
                  v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.add(*c, a); };
}

}  // namespace

void add_add_bindings(Bindings* bindings) {
  bindings->push_back({&kAddOp, no_workspace, bind_add, no_device_limits, cost_of_bytes, no_wire,
                       suits_device, no_shortening});
}

}  // namespace weft
