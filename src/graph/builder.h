// graph/builder.h: the front door for model code: each call checks shapes and adds one node.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

// Of attention's probabilities; rows (B, 2): every row's epoch and its number in the epoch.
struct DropoutRule {
  double rate = 0;
  uint64_t seed = 0;
  int64_t site = 0;
  Ref rows = {};
};

class Builder {
 public:
  explicit Builder(Graph* graph, Dtype compute) : graph_(*graph), compute_(compute) {}

  Ref input(std::string name, Shape shape, Dtype dtype);
  Ref constant(std::string name, Shape shape, Dtype dtype);
  Ref parameter(std::string name, Shape shape);
  Ref cache(std::string name, Shape shape);
  void set_layer(int layer) { layer_ = layer; }

  Ref embedding(Ref ids, Ref table, int32_t padding_id);  // (B, T), (V, C) -> (B, T, C)
  // x (B, T, K) times the stacked weights (N_i, K) -> (B, T, sum of N_i); biases empty or one each.
  Ref linear(Ref x, const std::vector<Ref>& weights, const std::vector<Ref>& biases);
  struct Normed {
    Ref sum, y;
  };
  // sum = x + residual (residual absent: sum is x itself), y its norm times weight.
  Normed rmsnorm(Ref x, Ref residual, Ref weight, float eps);
  struct HeadShape {
    int64_t heads, kv_heads, head_dim;
  };
  Ref rope(Ref qkv, Ref cosine, Ref sine, Ref positions, HeadShape h);
  // positions (B, T), from 0 in each segment: of packed rows; absent: a row is one segment.
  Ref attention(Ref qkv, Ref lengths, Ref positions, HeadShape h, bool padding_attends = false,
                const DropoutRule& dropout = {});
  Ref cached_attention(Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache, HeadShape h);
  Ref swiglu(Ref gate_up);  // (B, T, 2 F) -> (B, T, F)
  // Loss of every token (B, T) fp32, 0 where the target is negative. Logits are never whole.
  Ref head_loss(Ref x, Ref weight, Ref targets, int64_t chunk_rows);
  // The logits (B, V) fp32 of position last[b] of each row.
  Ref head_logits(Ref x, Ref weight, Ref last);

 private:
  Ref activation(const char* what, Shape shape, Dtype dtype);
  Node& add(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs);
  const Shape& shape(Ref r) const { return graph_[r].shape; }

  Graph& graph_;
  Dtype compute_;
  int layer_ = -1;
};

}  // namespace weft
