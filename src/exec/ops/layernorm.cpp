// exec/ops/layernorm.cpp: the norm, its recomputation and its gradient as calls.
#include "graph/ops/layernorm.h"

#include "exec/op_binding.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

LayerNormArgs layernorm_common_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  LayerNormArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.dtype = x.dtype;
  a.eps = node.as<LayerNormAttr>().eps;
  a.x = v.at(node.inputs[0]);
  a.weight = v.at(node.inputs[1]);
  return a;
}

NodeCall bind_layernorm(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const auto& attr = node.as<LayerNormAttr>();
  LayerNormArgs a = layernorm_common_args(v, node);
  a.bias = attr.has_bias ? v.at(node.inputs[2]) : nullptr;
  a.residual = attr.has_residual ? v.at(node.inputs.back()) : nullptr;
  a.sum = v.at(node.outputs[0]);
  a.y = v.at(node.outputs[1]);
  a.mean = v.at<float>(node.outputs[2]);
  a.rstd = v.at<float>(node.outputs[3]);
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.layernorm(*c, a); };
}

NodeCall bind_layernorm_apply(const BindContext& b, const Node& node) {
  const View& v = b.view;
  LayerNormArgs a = layernorm_common_args(v, node);
  a.y = v.at(node.outputs[0]);
  a.mean = v.at<float>(node.inputs[2]);
  a.rstd = v.at<float>(node.inputs[3]);
  a.bias = node.as<LayerNormAttr>().has_bias ? v.at(node.inputs[4]) : nullptr;
  a.reuse_statistics = true;
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.layernorm(*c, a); };
}

LayerNormBackwardArgs layernorm_grad_args(const View& v, const Node& node) {
  const Value& s = v.value(node.inputs[1]);
  const auto& attr = node.as<LayerNormAttr>();
  LayerNormBackwardArgs a{};
  a.R = v.tokens(node.inputs[1]);
  a.C = s.shape.back();
  a.dtype = s.dtype;
  a.dy = v.at(node.inputs[0]);
  a.s = v.at(node.inputs[1]);
  a.weight = v.at(node.inputs[2]);
  a.mean = v.at<float>(node.inputs[3]);
  a.rstd = v.at<float>(node.inputs[4]);
  a.dsum = attr.has_dsum ? v.at(node.inputs[5]) : nullptr;
  a.dx = v.at(node.outputs[0]);
  a.dweight = attr.has_dweight ? v.at(node.outputs[1]) : nullptr;
  a.dbias = attr.has_dbias ? v.at(node.outputs.back()) : nullptr;
  const bool has_gradient = attr.has_dweight || attr.has_dbias;
  a.grad_dtype = has_gradient ? v.value(node.outputs.back()).dtype : Dtype::kF32;
  return a;
}

size_t layernorm_grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.layernorm_backward_workspace(layernorm_grad_args(p.view, node), p.num_threads);
}

NodeCall bind_layernorm_grad(const BindContext& b, const Node& node) {
  return [a = layernorm_grad_args(b.view, node), adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    a.accumulate = adds(s);
    k.layernorm_backward(*c, a);
  };
}

void check_layernorm_device(const View& v, const Node& node) {
  check_device_extent(layernorm_common_args(v, node).C, kMostNormChannels,
                      "the model's hidden size", "set launch.device to cpu, or use another model");
}

}  // namespace

void add_layernorm_bindings(Bindings* bindings) {
  bindings->push_back({&kLayerNormOp, no_workspace, bind_layernorm, check_layernorm_device,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
  bindings->push_back({&kLayerNormApplyOp, no_workspace, bind_layernorm_apply, no_device_limits,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
  bindings->push_back({&kLayerNormGradOp, layernorm_grad_workspace, bind_layernorm_grad,
                       no_device_limits, cost_of_bytes, no_wire, suits_device, no_shortening});
}

}  // namespace weft
