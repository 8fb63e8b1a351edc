// exec/ops/rmsnorm.cpp: the norm, its recomputation and its gradient as calls.
#include "graph/ops/rmsnorm.h"

#include "exec/op_binding.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

RmsNormArgs rmsnorm_common_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  RmsNormArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.dtype = x.dtype;
  a.eps = node.as<RmsNormAttr>().eps;
  a.weight_offset = node.as<RmsNormAttr>().weight_offset;
  a.x = v.at(node.inputs[0]);
  a.weight = v.at(node.inputs[1]);
  return a;
}

NodeCall bind_rmsnorm(const BindContext& b, const Node& node) {
  const View& v = b.view;
  RmsNormArgs a = rmsnorm_common_args(v, node);
  a.residual = node.as<RmsNormAttr>().has_residual ? v.at(node.inputs[2]) : nullptr;
  a.sum = v.at(node.outputs[0]);
  a.y = v.at(node.outputs[1]);
  a.rstd = v.at<float>(node.outputs[2]);
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.rmsnorm(*c, a); };
}

NodeCall bind_rmsnorm_apply(const BindContext& b, const Node& node) {
  RmsNormArgs a = rmsnorm_common_args(b.view, node);
  a.y = b.view.at(node.outputs[0]);
  a.rstd = b.view.at<float>(node.inputs[2]);
  a.reuse_rstd = true;
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.rmsnorm(*c, a); };
}

RmsNormBackwardArgs rmsnorm_grad_args(const View& v, const Node& node) {
  const Value& s = v.value(node.inputs[1]);
  RmsNormBackwardArgs a{};
  a.R = v.tokens(node.inputs[1]);
  a.C = s.shape.back();
  a.dtype = s.dtype;
  a.dy = v.at(node.inputs[0]);
  a.s = v.at(node.inputs[1]);
  a.weight = v.at(node.inputs[2]);
  a.rstd = v.at<float>(node.inputs[3]);
  a.weight_offset = node.as<RmsNormAttr>().weight_offset;
  a.dsum = node.as<RmsNormAttr>().has_dsum ? v.at(node.inputs[4]) : nullptr;
  a.dx = v.at(node.outputs[0]);
  a.dweight = v.at(node.outputs[1]);
  a.grad_dtype = node.outputs[1] ? v.value(node.outputs[1]).dtype : Dtype::kF32;
  return a;
}

size_t rmsnorm_grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.rmsnorm_backward_workspace(rmsnorm_grad_args(p.view, node), p.num_threads);
}

NodeCall bind_rmsnorm_grad(const BindContext& b, const Node& node) {
  return [a = rmsnorm_grad_args(b.view, node), adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    a.accumulate = adds(s);
    k.rmsnorm_backward(*c, a);
  };
}

void check_rmsnorm_device(const View& v, const Node& node) {
  check_device_extent(rmsnorm_common_args(v, node).C, kMostNormChannels, "the model's hidden size",
                      "set launch.device to cpu, or use another model");
}

}  // namespace

void add_rmsnorm_bindings(Bindings* bindings) {
  bindings->push_back({&kRmsNormOp, no_workspace, bind_rmsnorm, check_rmsnorm_device, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
  bindings->push_back({&kRmsNormApplyOp, no_workspace, bind_rmsnorm_apply, no_device_limits,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
  bindings->push_back({&kRmsNormGradOp, rmsnorm_grad_workspace, bind_rmsnorm_grad, no_device_limits,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
}

}  // namespace weft
