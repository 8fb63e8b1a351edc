// exec/ops/relu.cpp: relu and its gradient as calls.
#include "graph/ops/relu.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_relu(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& x = v.value(node.inputs[0]);
  const ReluArgs a{num_elements(x.shape), x.dtype, v.at(node.inputs[0]), v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.relu(*c, a); };
}

NodeCall bind_relu_grad(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& y = v.value(node.inputs[1]);
  const ReluBackwardArgs a{num_elements(y.shape), y.dtype, v.at(node.inputs[0]),
                           v.at(node.inputs[1]), v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.relu_backward(*c, a); };
}

}  // namespace

void add_relu_bindings(Bindings* bindings) {
  bindings->push_back({&kReluOp, no_workspace, bind_relu, no_device_limits, cost_of_bytes, no_wire,
                       suits_device, no_shortening});
  bindings->push_back({&kReluGradOp, no_workspace, bind_relu_grad, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
