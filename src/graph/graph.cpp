// graph/graph.cpp: names, sizes and counts.
#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

Ref Graph::add(Value v) {
  values.push_back(std::move(v));
  return Ref{static_cast<int>(values.size()) - 1};
}

std::vector<Ref> Graph::of_kind(ValueKind kind) const {
  std::vector<Ref> found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind == kind) found.push_back(Ref{static_cast<int>(i)});
  }
  return found;
}

std::optional<Ref> Graph::find(const std::string& name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return Ref{static_cast<int>(i)};
  }
  return std::nullopt;
}

Graph::Storage Graph::storage_of(Ref r) const {
  Storage found{r};
  for (; (*this)[found.root].base; found.root = (*this)[found.root].base) {
    const Value& v = (*this)[found.root];
    found.offset_bytes += v.base_offset * dtype_bytes(v.dtype);
  }
  return found;
}

Portion portion_of(const Value& v) {
  if (v.portion) return *v.portion;
  return {v.name, v.shape, Shape(v.shape.size(), 0), v.shape, 0, num_elements(v.shape)};
}

bool is_collective(Op op) {
  return op == Op::kAllReduce || op == Op::kReduceScatter || op == Op::kAllGather ||
         op == Op::kAllToAll;
}

const char* op_name(Op op) {
  constexpr const char* kNames[] = {
      "embedding",        "linear",       "rmsnorm",        "rope",           "attention",
      "cached_attention", "swiglu",       "head_loss",      "head_logits",    "head_loss_grad",
      "linear_dx",        "linear_dw",    "bias_grad",      "embedding_grad", "rmsnorm_apply",
      "rmsnorm_grad",     "rope_inverse", "attention_grad", "swiglu_grad",    "add",
      "loss_sum",         "squares",      "norm",           "adamw",          "all_reduce",
      "reduce_scatter",   "all_gather",   "all_to_all",     "accumulate"};
  return kNames[static_cast<size_t>(op)];
}

const char* kind_name(ValueKind kind) {
  constexpr const char* kNames[] = {"input", "constant", "parameter",  "gradient",
                                    "state", "cache",    "activation", "result"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t value_bytes(const Value& v) { return num_elements(v.shape) * dtype_bytes(v.dtype); }

double node_flops(const Graph& graph, const Node& node) {
  const auto elements = [&](Ref r) { return static_cast<double>(num_elements(graph[r].shape)); };
  const auto rows = [&](Ref r) {  // tokens: all dimensions but the last
    return elements(r) / static_cast<double>(graph[r].shape.back());
  };
  double weights = 0;
  switch (node.op) {
    case Op::kLinear:
    case Op::kLinearDx:
      for (int p = 0; p < std::max(node.attr.parts, node.attr.row_pieces); ++p)
        weights += elements(node.inputs[1 + static_cast<size_t>(p)]);
      return 2 * rows(node.inputs[0]) * weights;
    case Op::kLinearDw:
      for (Ref w : node.outputs) weights += elements(w);
      return 2 * rows(node.inputs[0]) * weights;
    case Op::kHeadLoss:
    case Op::kHeadLogits:
    case Op::kHeadLossGrad: {
      double products = 1;
      if (node.op == Op::kHeadLossGrad)
        products += (node.outputs[1] ? 1 : 0) + (node.outputs[2] ? 1 : 0);
      for (int p = 0; p < node.attr.parts; ++p)
        weights += elements(node.inputs[1 + static_cast<size_t>(p)]);
      return 2 * products * rows(node.inputs[0]) * weights;
    }
    case Op::kAttention:
    case Op::kAttentionGrad: {
      const Shape& qkv = graph[node.inputs[0]].shape;  // (B, T, columns); half of T x T is computed
      const double products = node.op == Op::kAttention ? 2 : 5;
      return products *
             static_cast<double>(qkv[0] * qkv[1] * qkv[1] * node.attr.heads * node.attr.head_dim);
    }
    default:
      return 0;
  }
}

}  // namespace weft
