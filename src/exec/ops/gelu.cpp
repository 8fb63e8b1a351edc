// exec/ops/gelu.cpp: gelu and its gradient as calls.
#include "graph/ops/gelu.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_gelu(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& x = v.value(node.inputs[0]);
  const GeluArgs a{num_elements(x.shape), x.dtype, node.as<GeluAttr>().approximate_tanh,
                   v.at(node.inputs[0]), v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.gelu(*c, a); };
}

NodeCall bind_gelu_grad(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& x = v.value(node.inputs[1]);
  const GeluBackwardArgs a{num_elements(x.shape),
                           x.dtype,
                           node.as<GeluAttr>().approximate_tanh,
                           v.at(node.inputs[0]),
                           v.at(node.inputs[1]),
                           v.at(node.outputs[0]),
                           node.outputs.size() > 1 ? v.at(node.outputs[1]) : nullptr};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.gelu_backward(*c, a); };
}

}  // namespace

void add_gelu_bindings(Bindings* bindings) {
  bindings->push_back({&kGeluOp, no_workspace, bind_gelu, no_device_limits, cost_of_bytes, no_wire,
                       suits_device, no_shortening});
  bindings->push_back({&kGeluGradOp, no_workspace, bind_gelu_grad, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
