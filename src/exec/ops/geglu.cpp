// exec/ops/geglu.cpp: geglu and its gradient as calls.
#include "graph/ops/geglu.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_geglu(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& h = v.value(node.outputs[0]);
  const GegluArgs a{v.tokens(node.outputs[0]), h.shape.back(), h.dtype, v.at(node.inputs[0]),
                    v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.geglu(*c, a); };
}

NodeCall bind_geglu_grad(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& dh = v.value(node.inputs[0]);
  const GegluBackwardArgs a{v.tokens(node.inputs[0]),
                            dh.shape.back(),
                            dh.dtype,
                            v.at(node.inputs[0]),
                            v.at(node.inputs[1]),
                            v.at(node.outputs[0]),
                            node.outputs.size() > 1 ? v.at(node.outputs[1]) : nullptr};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.geglu_backward(*c, a); };
}

}  // namespace

void add_geglu_bindings(Bindings* bindings) {
  bindings->push_back({&kGegluOp, no_workspace, bind_geglu, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
  bindings->push_back({&kGegluGradOp, no_workspace, bind_geglu_grad, no_device_limits,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
}

}  // namespace weft
