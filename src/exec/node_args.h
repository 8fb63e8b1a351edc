// exec/node_args.h: a node's values turned into the arguments of its kernel.
//
// Used twice: with places that lead nowhere (Nowhere) when a plan asks how much workspace a node
// needs, and with the places in the arena when an executor binds its calls.
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
  int64_t first_row(Ref r) const { return portion_of(graph[r]).offset[0]; }  // of a table's piece
  int64_t tokens(Ref r) const { return graph[r].shape[0] * graph[r].shape[1]; }  // of (B, T, ...)
};

// Every value at some place or other, for kernels that are only asked for their workspace: they
// look whether they have an argument, not at it.
class Nowhere {
 public:
  explicit Nowhere(const Graph& graph);
  Nowhere(const Nowhere&) = delete;
  Nowhere& operator=(const Nowhere&) = delete;
  const View& view() const { return view_; }

 private:
  std::vector<std::byte*> data_;
  View view_;
};

// `count` matrices from refs[begin] on, one under another; one matrix.
Stack stacked(const View& v, const std::vector<Ref>& refs, size_t begin, int count);
Stack single_stack(void* data, int64_t rows, int64_t ld);

GemmArgs linear_args(const View& v, const Node& node);
GemmArgs linear_dx_args(const View& v, const Node& node);
GemmArgs linear_dw_args(const View& v, const Node& node);
BiasBackwardArgs bias_grad_args(const View& v, const Node& node);
// Of piece p of the table.
EmbeddingArgs embedding_args(const View& v, const Node& node, int p);
EmbeddingBackwardArgs embedding_grad_args(const View& v, const Node& node, int p);
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
