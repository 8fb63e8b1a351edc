// exec/ops/qk_norm.cpp: the norm of q's and k's heads and its gradient as calls.
#include "graph/ops/qk_norm.h"

#include "base/error.h"
#include "exec/op_binding.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

NodeCall bind_qk_norm(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const QkNormAttr& attr = node.as<QkNormAttr>();
  const QkNormArgs a{.R = v.tokens(node.inputs[0]),
                     .H = attr.heads.heads,
                     .G = attr.heads.kv_heads,
                     .D = attr.heads.head_dim,
                     .dtype = v.value(node.inputs[0]).dtype,
                     .eps = attr.eps,
                     .weight_offset = attr.weight_offset,
                     .x = v.at(node.inputs[0]),
                     .q_weight = v.at(node.inputs[1]),
                     .k_weight = v.at(node.inputs[2]),
                     .y = v.at(node.outputs[0]),
                     .rstd = v.at<float>(node.outputs[1])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.qk_norm(*c, a); };
}

QkNormBackwardArgs qk_norm_grad_args(const View& v, const Node& node) {
  const QkNormAttr& attr = node.as<QkNormAttr>();
  ensure(attr.leaves <= kMaxHeadLeaves && attr.heads.heads % attr.leaves == 0 &&
             attr.heads.kv_heads % attr.leaves == 0,
         fmt::format("{} and {} heads in {} leaves", attr.heads.heads, attr.heads.kv_heads,
                     attr.leaves));
  QkNormBackwardArgs a{};
  a.R = v.tokens(node.inputs[1]);
  a.H = attr.heads.heads;
  a.G = attr.heads.kv_heads;
  a.D = attr.heads.head_dim;
  a.dtype = v.value(node.inputs[1]).dtype;
  a.grad_dtype = Dtype::kF32;
  a.weight_offset = attr.weight_offset;
  a.leaves = attr.leaves;
  a.dy = v.at(node.inputs[0]);
  a.x = v.at(node.inputs[1]);
  a.q_weight = v.at(node.inputs[2]);
  a.k_weight = v.at(node.inputs[3]);
  a.rstd = v.at<float>(node.inputs[4]);
  a.dx = v.at(node.outputs[0]);
  const size_t leaves = static_cast<size_t>(attr.leaves);
  for (size_t i = 0; i < leaves; ++i) {
    const Ref dq = node.outputs[1 + i], dk = node.outputs[1 + leaves + i];
    for (Ref r : {dq, dk}) a.grad_dtype = r ? v.value(r).dtype : a.grad_dtype;
    a.dq_weight[i] = v.at(dq);
    a.dk_weight[i] = v.at(dk);
  }
  return a;
}

size_t qk_norm_grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.qk_norm_backward_workspace(qk_norm_grad_args(p.view, node), p.num_threads);
}

NodeCall bind_qk_norm_grad(const BindContext& b, const Node& node) {
  return [a = qk_norm_grad_args(b.view, node), adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    a.accumulate = adds(s);
    k.qk_norm_backward(*c, a);
  };
}

void check_qk_norm_device(const View&, const Node& node) {
  check_device_extent(node.as<QkNormAttr>().heads.head_dim, kMostHeadDim, "the model's head size",
                      "set launch.device to cpu, or use another model");
}

}  // namespace

void add_qk_norm_bindings(Bindings* bindings) {
  bindings->push_back({&kQkNormOp, no_workspace, bind_qk_norm, check_qk_norm_device, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
  bindings->push_back({&kQkNormGradOp, qk_norm_grad_workspace, bind_qk_norm_grad, no_device_limits,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
}

}  // namespace weft
