// exec/bind_scalars.cpp: the loss, the gradient norm, and updates, whose arguments change a step.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/exact_sum.h"
#include "exec/executor.h"
#include "exec/node_args.h"
#include "tensor/loss_scale.h"

namespace weft {
namespace {

// The token losses of all passes so far, as an exact sum: the caller adds up the ranks'.
std::function<void(const StepScalars&)> bind_loss_sum(const View& v, const Node& node) {
  const float* losses = v.at<float>(node.inputs[0]);
  const int64_t n = num_elements(v.value(node.inputs[0]).shape);
  auto* sum = v.at<ExactSum>(node.outputs[0]);
  return [=](const StepScalars& s) {
    if (s.pass == 0) sum->clear();
    for (int64_t i = 0; i < n; ++i) sum->add(losses[i]);
    sum->normalize();
  };
}

// Squares of all cells, over the axes on which other ranks count others; norm and scale.
std::function<void(const StepScalars&)> bind_norm(const View& v, const Node& node,
                                                  const Mesh& mesh) {
  std::vector<std::pair<const double*, int64_t>> partials;
  for (Ref r : node.inputs) partials.emplace_back(v.at<double>(r), num_elements(v.value(r).shape));
  double* norm = v.at<double>(node.outputs[0]);
  float* scale = v.at<float>(node.outputs[1]);
  LossScale* loss_scale = node.outputs.size() > 2 ? v.at<LossScale>(node.outputs[2]) : nullptr;
  Comm* tensor = node.attr.sum_tensor ? mesh.tensor : nullptr;
  Comm* data = node.attr.sum_data ? mesh.data : nullptr;
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

}  // namespace

// Nodes whose work is a few scalars, or whose arguments come from the step's scalars.
Executor::Call Executor::bind_scalar(const Node& node, const Context* c) {
  const View v{plan_.graph, data_};
  if (node.op == Op::kLossSum) return bind_loss_sum(v, node);
  if (node.op == Op::kNorm) return bind_norm(v, node, mesh_);
  ensure(node.op == Op::kAdamw, std::string(op_name(node.op)) + " cannot be bound");
  const Kernels& k = kernels_;
  const float* scale = v.at<float>(node.inputs[2]);
  return [=, &k, a = adamw_args(v, node), decay = node.attr.decay](const StepScalars& s) mutable {
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

}  // namespace weft
