// exec/ops/attention.cpp: attention and its gradient as calls.
#include "graph/ops/attention.h"

#include "exec/op_binding.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/gpu/cudnn_rule.h"
#include "kernel/gpu/device_limits.h"
#include "kernel/packed_qkv.h"

namespace weft {
namespace {

// What both directions have; optional: the first input that may be missing, positions, before the
// rows' numbers.
template <typename Args>
Args common_args(const View& v, const Node& node, size_t optional) {
  const Value& qkv = v.value(node.inputs[0]);
  const AttentionAttr& attr = node.as<AttentionAttr>();
  const bool drops = attr.dropout > 0;
  Args a{};
  a.B = qkv.shape[0];
  a.T = qkv.shape[1];
  a.H = attr.heads.heads;
  a.G = attr.heads.kv_heads;
  a.D = attr.heads.head_dim;
  a.dtype = qkv.dtype;
  a.scale = attr.scale;
  set_packed_qkv(&a, v.at(node.inputs[0]));
  a.source_lengths = v.at<int32_t>(node.inputs[1]);
  a.lengths = attr.padding_attends ? nullptr : a.source_lengths;
  const bool packed = node.inputs.size() - (drops ? 1 : 0) > optional;
  a.positions = a.source_positions = packed ? v.at<int32_t>(node.inputs[optional]) : nullptr;
  if (drops) {
    a.dropout = {attr.dropout, attr.dropout_seed, attr.dropout_site, attr.first_head,
                 v.at<int64_t>(node.inputs.back())};
  }
  a.longest = attr.longest;
  return a;
}

AttentionArgs args(const View& v, const Node& node) {
  auto a = common_args<AttentionArgs>(v, node, 2);
  a.out = contiguous_heads<void>(v.at(node.outputs[0]), a.T, a.H, a.D);
  a.lse = v.at<float>(node.outputs[1]);
  return a;
}

AttentionBackwardArgs grad_args(const View& v, const Node& node) {
  auto a = common_args<AttentionBackwardArgs>(v, node, 5);
  a.out = contiguous_heads<const void>(v.at(node.inputs[2]), a.T, a.H, a.D);
  a.dout = contiguous_heads<const void>(v.at(node.inputs[3]), a.T, a.H, a.D);
  a.lse = v.at<float>(node.inputs[4]);
  set_packed_gradient(&a, v.at(node.outputs[0]));
  return a;
}

size_t workspace(const PlanContext& p, const Node& node) {
  return p.kernels.attention_workspace(args(p.view, node), p.num_threads);
}

size_t grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.attention_backward_workspace(grad_args(p.view, node), p.num_threads);
}

NodeCall bind(const BindContext& b, const Node& node) {
  return [a = args(b.view, node), &k = b.kernels, c = b.context](const StepScalars&) {
    k.attention(*c, a);
  };
}

NodeCall bind_grad(const BindContext& b, const Node& node) {
  return [a = grad_args(b.view, node), &k = b.kernels, c = b.context](const StepScalars&) {
    k.attention_backward(*c, a);
  };
}

void check_device(const View& v, const Node& node) {
  const AttentionArgs a = args(v, node);
  check_device_extent(a.B, kMostGridRows, "rows of a pass", "lower train.micro_batch");
  check_device_extent(a.H, kMostGridRows, "attention heads of a rank",
                      "raise parallel.tp, or set launch.device to cpu");
}

// Of the kernel that will serve it.
template <typename Args>
Cost::Unit unit_of(const Args& a) {
  const bool drops = a.dropout.rate > 0;
  if (drops) return Cost::Unit::kAttentionDropout;
  if (a.dtype == Dtype::kF32) return Cost::Unit::kAttention;
  if (!suits_cudnn(a) || !wants_cudnn()) return Cost::Unit::kAttentionOwn;
  return a.positions ? Cost::Unit::kAttentionPacked : Cost::Unit::kAttention;
}

Cost cost(const View& v, const Node& node) {
  return {unit_of(args(v, node)), node_flops(v.graph, node), 0};
}

Cost grad_cost(const View& v, const Node& node) {
  return {unit_of(grad_args(v, node)), node_flops(v.graph, node), 0};
}

void shorten(const Graph& longest, const Node& in_longest, Node* node) {
  node->edit<AttentionAttr>().longest = longest[in_longest.inputs[0]].shape[1];
}

}  // namespace

void add_attention_bindings(Bindings* bindings) {
  bindings->push_back(
      {&kAttentionOp, workspace, bind, check_device, cost, no_wire, suits_device, shorten});
  bindings->push_back({&kAttentionGradOp, grad_workspace, bind_grad, no_device_limits, grad_cost,
                       no_wire, suits_device, shorten});
}

}  // namespace weft
