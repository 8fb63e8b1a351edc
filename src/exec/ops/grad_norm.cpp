// exec/ops/grad_norm.cpp: squares, norm and clip factor; on a GPU all at once (device_finish.h).
#include "graph/ops/grad_norm.h"

#include <cmath>
#include <limits>

#include "base/exact_sum.h"
#include "exec/device_finish.h"
#include "exec/op_binding.h"
#include "tensor/loss_scale.h"

namespace weft {
namespace {

NodeCall bind_squares(const BindContext& b, const Node& node) {
  if (b.kernels.device) return [](const StepScalars&) {};  // computed with the norm
  const View& v = b.view;
  const Value& x = v.value(node.inputs[0]);
  const SquaresArgs a{num_elements(x.shape), x.dtype, v.at(node.inputs[0]),
                      v.at<double>(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.squares(*c, a); };
}

// Squares of all cells, summed over the axes on which ranks hold different ones; norm and scale.
NodeCall bind_norm_on_host(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const NormAttr attr = node.as<NormAttr>();
  std::vector<std::pair<const double*, int64_t>> partials;
  for (Ref r : node.inputs) partials.emplace_back(v.at<double>(r), num_elements(v.value(r).shape));
  double* norm = v.at<double>(node.outputs[0]);
  float* scale = v.at<float>(node.outputs[1]);
  LossScale* loss_scale = node.outputs.size() > 2 ? v.at<LossScale>(node.outputs[2]) : nullptr;
  Comm* tensor = attr.sum_tensor ? b.mesh.tensor : nullptr;
  Comm* data = attr.sum_data ? b.mesh.data : nullptr;
  return [=](const StepScalars& s) {
    ExactSum sum;
    for (const auto& [cells, n] : partials) {
      for (int64_t i = 0; i < n; ++i) sum.add(cells[i]);
    }
    for (Comm* group : {tensor, data}) {
      if (!group) continue;
      sum.normalize();
      group->all_reduce(sum.limbs(), ExactSum::kLimbs, Dtype::kI64);
    }
    double per_token = 1.0 / static_cast<double>(s.target_tokens);
    if (loss_scale) per_token /= static_cast<double>(loss_scale->factor);
    *norm = std::sqrt(sum.value()) * per_token;
    const double clip = s.clip_norm > 0 ? std::min(1.0, s.clip_norm / (*norm + 1e-6)) : 1.0;
    *scale = static_cast<float>(clip * per_token);
    if (!loss_scale) return;
    const bool overflowed = !std::isfinite(*norm);
    if (overflowed) *scale = std::numeric_limits<float>::quiet_NaN();
    *loss_scale = next_loss_scale(*loss_scale, overflowed);
  };
}

NodeCall bind_norm(const BindContext& b, const Node& node) {
  if (!b.kernels.device) return bind_norm_on_host(b, node);
  b.finish->set_context(*b.context);
  return [finish = b.finish, mesh = b.mesh](const StepScalars&) { finish->find_norm(mesh); };
}

void wire_norm(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  constexpr int64_t kSumBytes = ExactSum::kLimbs * int64_t{sizeof(int64_t)};
  const NormAttr attr = node.as<NormAttr>();
  if (attr.sum_tensor)
    add_wire(items, {CommOp::kAllReduce, Axis::kTensor, p.mesh.tp, 1, kSumBytes});
  if (attr.sum_data) add_wire(items, {CommOp::kAllReduce, Axis::kData, p.mesh.dp, 1, kSumBytes});
}

}  // namespace

void add_grad_norm_bindings(Bindings* bindings) {
  bindings->push_back({&kSquaresOp, no_workspace, bind_squares, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
  bindings->push_back({&kNormOp, no_workspace, bind_norm, no_device_limits, cost_of_bytes,
                       wire_norm, suits_device, no_shortening});
}

}  // namespace weft
