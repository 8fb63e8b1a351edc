// exec/ops/cached_attention.cpp: attention over a cache as a call.
#include "graph/ops/cached_attention.h"

#include "exec/op_binding.h"
#include "exec/strided_heads.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

CachedAttentionArgs cached_attention_args(const View& v, const Node& node) {
  const Value& value = v.value(node.inputs[0]);
  const CachedAttentionAttr& attr = node.as<CachedAttentionAttr>();
  const int64_t D = attr.heads.head_dim;
  const bool is_source = attr.layout == QkvLayout::kQAndKv;
  const auto* fifth = v.at<int32_t>(node.inputs[4]);
  CachedAttentionArgs a;
  a.B = value.shape[0];
  a.T = value.shape[1];
  a.H = attr.heads.heads;
  a.G = attr.heads.kv_heads;
  a.D = D;
  a.max_positions = v.value(node.inputs[2]).shape[1];
  a.dtype = value.dtype;
  a.scale = attr.scale;
  a.window = attr.window;
  a.q = heads_at<const void>(v.at(node.inputs[0]), value, 0,
                             attr.layout == QkvLayout::kInterleaved ? 3 * D : D);
  a.lengths = v.at<int32_t>(node.inputs[1]);
  a.k_cache = v.at(node.inputs[2]);
  a.v_cache = v.at(node.inputs[3]);
  (is_source ? a.source_lengths : a.starts) = fifth;
  a.bias = bias_of(v, attr, node.inputs.back(), false);
  a.out = v.at(node.outputs[0]);
  return a;
}

size_t cached_attention_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.cached_attention_workspace(cached_attention_args(p.view, node), p.num_threads);
}

NodeCall bind_cached_attention(const BindContext& b, const Node& node) {
  return [a = cached_attention_args(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars&) { k.cached_attention(*c, a); };
}

void check_cached_attention_device(const View& v, const Node& node) {
  const CachedAttentionArgs a = cached_attention_args(v, node);
  check_device_extent(a.D, kMostHeadDim, "columns of an attention head",
                      "set launch.device to cpu");
  check_device_extent(a.B, kMostGridRows, "rows of a pass", "lower train.micro_batch");
  check_device_extent(a.H, kMostGridRows, "attention heads of a rank",
                      "raise parallel.tp, or set launch.device to cpu");
  check_device_extent(a.T, kMostGridRows, "new positions of a prompt", "give shorter prompts");
}

}  // namespace

void add_cached_attention_bindings(Bindings* bindings) {
  bindings->push_back({&kCachedAttentionOp, cached_attention_workspace, bind_cached_attention,
                       check_cached_attention_device, cost_of_bytes, no_wire, suits_device,
                       no_shortening});
}

}  // namespace weft
