// exec/node_args.h: a node's values turned into the arguments of its kernel.
//
// Used twice: with null pointers when a plan asks how much workspace a node needs, and with the
// places in the arena when an executor binds its calls.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "kernel/kernels.h"

namespace weft {

struct View {
  const Graph& graph;
  const std::vector<std::byte*>& data;  // by value

  const Value& value(Ref r) const { return graph[r]; }
  template <typename T = void>
  T* at(Ref r) const {
    return r ? reinterpret_cast<T*>(data[static_cast<size_t>(r.id)]) : nullptr;
  }
  int64_t tokens(Ref r) const { return graph[r].shape[0] * graph[r].shape[1]; }  // of (B, T, ...)
};

GemmArgs linear_args(const View& v, const Node& node);
GemmArgs linear_dx_args(const View& v, const Node& node);
GemmArgs linear_dw_args(const View& v, const Node& node);
BiasBackwardArgs bias_grad_args(const View& v, const Node& node);
EmbeddingArgs embedding_args(const View& v, const Node& node);
EmbeddingBackwardArgs embedding_grad_args(const View& v, const Node& node);
RmsNormArgs rmsnorm_args(const View& v, const Node& node);
RmsNormArgs rmsnorm_apply_args(const View& v, const Node& node);
RmsNormBackwardArgs rmsnorm_grad_args(const View& v, const Node& node);
RopeArgs rope_args(const View& v, const Node& node);
AttentionArgs attention_args(const View& v, const Node& node);
AttentionBackwardArgs attention_grad_args(const View& v, const Node& node);
CachedAttentionArgs cached_attention_args(const View& v, const Node& node);
SwigluArgs swiglu_args(const View& v, const Node& node);
SwigluBackwardArgs swiglu_grad_args(const View& v, const Node& node);
AddArgs add_args(const View& v, const Node& node);
SquaresArgs squares_args(const View& v, const Node& node);
AdamwArgs adamw_args(const View& v, const Node& node);

}  // namespace weft
