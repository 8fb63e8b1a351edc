// exec/ops/attention.cpp: attention and its gradient as calls.
#include "graph/ops/attention.h"

#include "base/error.h"
#include "exec/op_binding.h"
#include "exec/strided_heads.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/gpu/cudnn_rule.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

// What a call of the graph accepts, the kernels must handle.
static_assert(kMostRelativeBuckets == kMostBuckets && kMostHeadsOfAlibi == kMostAlibiHeads);

// q, k and v of the values, or of their gradients, which have the same layout.
template <typename Data>
PackedQkv<Data> strided_qkv(const View& v, const AttentionAttr& attr,
                            const std::vector<Ref>& values) {
  const int64_t D = attr.heads.head_dim, H = attr.heads.heads, G = attr.heads.kv_heads;
  const auto heads = [&](size_t i, int64_t column, int64_t step) {
    return heads_at<Data>(v.at(values[i]), v.value(values[i]), column, step);
  };
  switch (attr.layout) {
    case QkvLayout::kInterleaved:
      return {heads(0, 0, 3 * D), heads(0, D, 3 * D), heads(0, 2 * D, 3 * D)};
    case QkvLayout::kQAndKv:
      return {heads(0, 0, D), heads(1, 0, D), heads(1, G * D, D)};
    case QkvLayout::kSeparate:
      return {heads(0, 0, D), heads(1, 0, D), heads(2, 0, D)};
    case QkvLayout::kPacked:
      return {heads(0, 0, D), heads(0, H * D, D), heads(0, (H + G) * D, D)};
  }
  throw_bug(__FILE__, __LINE__, "no rule for a layout of q, k and v");
}

// Common to both directions.
void set_operands(const View& v, const Node& node, AttentionOperands* a) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  const AttentionInputs in = attention_inputs(node);
  const Value& q = v.value(in.values[0]);
  a->B = q.shape[0];
  a->T = q.shape[1];
  a->S = v.value(in.values.back()).shape[1];
  a->H = attr.heads.heads;
  a->G = attr.heads.kv_heads;
  a->D = attr.heads.head_dim;
  a->dtype = q.dtype;
  a->scale = attr.scale;
  a->causal = attr.causal;
  a->has_source = attr.has_source;
  a->window = attr.window;
  const auto qkv = strided_qkv<const void>(v, attr, in.values);
  a->q = qkv.q;
  a->k = qkv.k;
  a->v = qkv.v;
  a->source_lengths = v.at<int32_t>(in.source_lengths);
  a->lengths = attr.padding_attends ? nullptr : v.at<int32_t>(in.lengths);
  a->positions = v.at<int32_t>(in.positions);
  a->source_positions = v.at<int32_t>(in.source_positions);
  a->bias = bias_of(v, attr, in.table, !attr.causal);
  if (attr.dropout > 0) {
    a->dropout = {attr.dropout, attr.dropout_seed, attr.dropout_site, attr.first_head,
                  v.at<int64_t>(in.rows)};
  }
  a->longest = attr.longest;
  a->longest_source = attr.longest_source;
}

AttentionArgs attention_args(const View& v, const Node& node) {
  AttentionArgs a;
  set_operands(v, node, &a);
  a.out = contiguous_heads<void>(v.at(node.outputs[0]), a.T, a.H, a.D);
  a.lse = v.at<float>(node.outputs[1]);
  return a;
}

AttentionBackwardArgs attention_grad_args(const View& v, const Node& node) {
  AttentionBackwardArgs a;
  set_operands(v, node, &a);
  const AttentionInputs in = attention_inputs(node);
  a.out = contiguous_heads<const void>(v.at(in.out), a.T, a.H, a.D);
  a.dout = contiguous_heads<const void>(v.at(in.dout), a.T, a.H, a.D);
  a.lse = v.at<float>(in.lse);
  const auto d = strided_qkv<void>(v, node.as<AttentionAttr>(), node.outputs);
  a.dq = d.q;
  a.dk = d.k;
  a.dv = d.v;
  if (in.table && node.outputs.back()) {
    a.dtable = v.at(node.outputs.back());
    a.grad_dtype = v.value(node.outputs.back()).dtype;
  }
  return a;
}

size_t attention_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.attention_workspace(attention_args(p.view, node), p.num_threads);
}

size_t attention_grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.attention_backward_workspace(attention_grad_args(p.view, node), p.num_threads);
}

NodeCall bind_attention(const BindContext& b, const Node& node) {
  return [a = attention_args(b.view, node), &k = b.kernels, c = b.context](const StepScalars&) {
    k.attention(*c, a);
  };
}

NodeCall bind_attention_grad(const BindContext& b, const Node& node) {
  return [a = attention_grad_args(b.view, node), adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    a.accumulate = a.dtable && adds(s);
    k.attention_backward(*c, a);
  };
}

void check_attention_device(const View& v, const Node& node) {
  const AttentionArgs a = attention_args(v, node);
  check_device_extent(a.D, kMostHeadDim, "columns of an attention head",
                      "set launch.device to cpu");
  check_device_extent(a.bias.buckets.count, kMostDeviceBuckets, "buckets of relative positions",
                      "set launch.device to cpu");
  check_device_extent(a.B, kMostGridRows, "rows of a pass", "lower train.micro_batch");
  check_device_extent(a.H, kMostGridRows, "attention heads of a rank",
                      "raise parallel.tp, or set launch.device to cpu");
}

// For the kernel that will handle it in fast mode; in exact mode some forms are the built-in one's.
Cost::Unit unit_of(const AttentionOperands& a) {
  const bool drops = a.dropout.rate > 0;
  if (drops) return Cost::Unit::kAttentionDropout;
  if (a.dtype == Dtype::kF32) return Cost::Unit::kAttention;
  if (!suits_cudnn(a) || !wants_cudnn()) return Cost::Unit::kAttentionBuiltin;
  return a.positions ? Cost::Unit::kAttentionPacked : Cost::Unit::kAttention;
}

Cost attention_cost(const View& v, const Node& node) {
  return {unit_of(attention_args(v, node)), node_flops(v.graph, node), 0};
}

Cost attention_grad_cost(const View& v, const Node& node) {
  return {unit_of(attention_grad_args(v, node)), node_flops(v.graph, node), 0};
}

void shorten(const Graph& longest, const Node& in_longest, Node* node) {
  AttentionAttr& attr = node->edit<AttentionAttr>();
  const std::vector<Ref> values = attention_inputs(in_longest).values;
  attr.longest = longest[values.front()].shape[1];
  attr.longest_source = longest[values.back()].shape[1];
}

}  // namespace

void add_attention_bindings(Bindings* bindings) {
  bindings->push_back({&kAttentionOp, attention_workspace, bind_attention, check_attention_device,
                       attention_cost, no_wire, suits_device, shorten});
  bindings->push_back({&kAttentionGradOp, attention_grad_workspace, bind_attention_grad,
                       no_device_limits, attention_grad_cost, no_wire, suits_device, shorten});
}

}  // namespace weft
