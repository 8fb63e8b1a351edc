// exec/ops/fill_cache.cpp: new keys and values of a cache as a call.
#include "graph/ops/fill_cache.h"

#include "exec/op_binding.h"
#include "exec/strided_heads.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

FillCacheArgs fill_cache_args(const View& v, const Node& node) {
  const auto& [heads, layout] = node.as<FillCacheAttr>();
  const Value& value = v.value(node.inputs[0]);
  const int64_t D = heads.head_dim, kv = heads.kv_heads * D;
  const bool is_interleaved = layout == QkvLayout::kInterleaved;
  const int64_t k = is_interleaved ? D : layout == QkvLayout::kPacked ? heads.heads * D : 0;
  const auto at = [&](int64_t column) {
    return heads_at<const void>(v.at(node.inputs[0]), value, column, is_interleaved ? 3 * D : D);
  };
  FillCacheArgs a;
  a.B = value.shape[0];
  a.T = value.shape[1];
  a.G = heads.kv_heads;
  a.D = D;
  a.max_positions = v.value(node.inputs[2]).shape[1];
  a.dtype = value.dtype;
  a.k = at(k);
  a.v = at(k + (is_interleaved ? D : kv));
  a.lengths = v.at<int32_t>(node.inputs[1]);
  a.k_cache = v.at(node.inputs[2]);
  a.v_cache = v.at(node.inputs[3]);
  if (node.inputs.size() > 4) a.starts = v.at<int32_t>(node.inputs[4]);
  return a;
}

NodeCall bind_fill_cache(const BindContext& b, const Node& node) {
  return [a = fill_cache_args(b.view, node), &k = b.kernels, c = b.context](const StepScalars&) {
    k.fill_cache(*c, a);
  };
}

void check_fill_cache_device(const View& v, const Node& node) {
  const FillCacheArgs a = fill_cache_args(v, node);
  check_device_extent(a.B, kMostGridRows, "rows of a pass", "lower --batch");
  check_device_extent(a.T, kMostGridRows, "new positions of a prompt", "give shorter prompts");
}

}  // namespace

void add_fill_cache_bindings(Bindings* bindings) {
  bindings->push_back({&kFillCacheOp, no_workspace, bind_fill_cache, check_fill_cache_device,
                       cost_of_bytes, no_wire, suits_device, no_shortening});
}

}  // namespace weft
