// exec/ops/adamw.cpp: one update per parameter; on a GPU all at the first (device_finish.h).
#include "exec/ops/adamw.h"

#include <cmath>

#include "exec/device_finish.h"
#include "exec/op_binding.h"
#include "graph/ops/adamw.h"

namespace weft {

AdamwArgs adamw_args(const View& v, const Node& node) {
  const Value& p = v.value(node.inputs[0]);
  AdamwArgs a{};
  a.n = num_elements(p.shape);
  a.dtype = p.dtype;
  a.grad_dtype = v.value(node.inputs[1]).dtype;
  a.state_dtype = v.value(node.inputs[3]).dtype;
  a.p = v.at(node.inputs[0]);
  a.grad = v.at(node.inputs[1]);
  a.m = v.at(node.inputs[3]);
  a.v = v.at(node.inputs[4]);
  a.master = node.inputs.size() > 5 ? v.at<float>(node.inputs[5]) : nullptr;
  return a;
}

namespace {

NodeCall bind(const BindContext& b, const Node& node) {
  if (b.kernels.device) {
    return [finish = b.finish, is_first = b.finish->take_update()](const StepScalars&) {
      if (is_first) finish->update();
    };
  }
  const float* scale = b.view.at<float>(node.inputs[2]);
  return [=, a = adamw_args(b.view, node), decay = node.as<AdamwAttr>().decay, &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    if (std::isnan(*scale)) return;  // a step that does not count
    a.grad_scale = *scale;
    a.lr = s.lr;
    a.beta1 = s.beta1;
    a.beta2 = s.beta2;
    a.eps = s.eps;
    a.weight_decay = decay ? s.weight_decay : 0;
    a.bias1 = 1 - std::pow(s.beta1, static_cast<double>(s.update));
    a.bias2 = 1 - std::pow(s.beta2, static_cast<double>(s.update));
    k.adamw(*c, a);
  };
}

}  // namespace

void add_adamw_bindings(Bindings* bindings) {
  bindings->push_back({&kAdamwOp, no_workspace, bind, no_device_limits, cost_of_bytes, no_wire,
                       suits_device, no_shortening});
}

}  // namespace weft
