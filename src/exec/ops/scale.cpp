// exec/ops/scale.cpp: products with a constant as calls.
#include "graph/ops/scale.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_scale(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& y = v.value(node.outputs[0]);
  const ScaleArgs a{num_elements(y.shape), y.dtype, node.as<ScaleAttr>().factor,
                    v.at(node.inputs[0]), v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.scale(*c, a); };
}

}  // namespace

void add_scale_bindings(Bindings* bindings) {
  bindings->push_back({&kScaleOp, no_workspace, bind_scale, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
