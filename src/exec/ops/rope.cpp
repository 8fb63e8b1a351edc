// exec/ops/rope.cpp: rotation and its inverse as calls.
#include "graph/ops/rope.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_rope(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& qkv = v.value(node.inputs[0]);
  const HeadShape& heads = node.as<RopeAttr>().heads;
  RopeArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.T = qkv.shape[1];
  a.H = heads.heads;
  a.G = heads.kv_heads;
  a.D = heads.head_dim;
  a.dtype = qkv.dtype;
  a.qkv = v.at(node.outputs[0]);  // shares the input's memory
  a.cosine = v.at<float>(node.inputs[1]);
  a.sine = v.at<float>(node.inputs[2]);
  a.positions = node.inputs.size() > 3 ? v.at<int32_t>(node.inputs[3]) : nullptr;
  a.inverse = node.op == &kRopeInverseOp;
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.rope(*c, a); };
}

}  // namespace

void add_rope_bindings(Bindings* bindings) {
  for (const Op op : {&kRopeOp, &kRopeInverseOp}) {
    bindings->push_back({op, no_workspace, bind_rope, no_device_limits, cost_of_bytes, no_wire,
                         suits_device, no_shortening});
  }
}

}  // namespace weft
