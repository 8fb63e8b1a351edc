// exec/ops/loss_sum.cpp: sums the token losses of all passes so far; the caller sums over ranks.
#include "graph/ops/loss_sum.h"

#include "base/exact_sum.h"
#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_loss_sum(const BindContext& b, const Node& node) {
  const float* losses = b.view.at<float>(node.inputs[0]);
  const int64_t n = num_elements(b.view.value(node.inputs[0]).shape);
  if (b.kernels.device) {
    return [=, limbs = b.view.at<int64_t>(node.outputs[0]), &k = b.kernels,
            c = b.context](const StepScalars& s) {
      k.device->exact_sum(*c, {n, Dtype::kF32, losses, limbs, s.pass == 0});
    };
  }
  return [=, sum = b.view.at<ExactSum>(node.outputs[0])](const StepScalars& s) {
    if (s.pass == 0) sum->clear();
    for (int64_t i = 0; i < n; ++i) sum->add(losses[i]);
    sum->normalize();
  };
}

}  // namespace

void add_loss_sum_bindings(Bindings* bindings) {
  bindings->push_back({&kLossSumOp, no_workspace, bind_loss_sum, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
