// graph/ops/linear.h: products with stacked weights, and their gradients.
//
// linear: x, weights, biases -> y. linear_dx: dy, weights -> dx. linear_dw: dy, x -> gradients of
// weights. bias_grad: dy -> gradients of biases.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

// The order of a weight's dims: (out, in), or (in, out) as in GPT-2's Conv1D.
enum class WeightOrder { kOutIn, kInOut };

struct LinearAttr {
  int parts = 1;          // weights that are stacked in this one product
  bool has_bias = false;  // a bias follows for each weight
  int64_t column = 0;     // weight and bias gradients: first column of dy that belongs to them
  int leaves = 0;      // linear_dx: number of leaves that parts form (exact mode), added in a tree
  int row_pieces = 0;  // number of pieces of the weight along its `in` dim
  WeightOrder order = WeightOrder::kOutIn;
};
inline size_t out_dim(const LinearAttr& attr) { return attr.order == WeightOrder::kInOut ? 1 : 0; }
inline size_t in_dim(const LinearAttr& attr) { return 1 - out_dim(attr); }
extern const OpRule kLinearOp, kLinearDxOp, kLinearDwOp, kBiasGradOp;

// The rules' tensor-parallel side (linear_local.cpp).
void localize_linear(Localizer* localizer, const Node& node);
void localize_linear_dx(Localizer* localizer, const Node& node);
void localize_weight_grad(Localizer* localizer, const Node& node);

// Of a value that is cut along its columns: the widths of the weights, in all ranks, whose stacked
// product it lies as. A rank has some columns of each, not a run of the logical ones. One width: a
// run. Operations between the product and x keep its columns, or x is theirs.
std::vector<int64_t> stacked_widths(const Localizer& localizer, Ref x);

namespace ops {
// x (B, T, K) times the stacked weights, (N_i, K) or where so ordered (K, N_i)
// -> (B, T, sum of N_i); biases: none, or one each.
Ref linear(Builder& g, Ref x, const std::vector<Ref>& weights, const std::vector<Ref>& biases,
           WeightOrder order = WeightOrder::kOutIn);
}  // namespace ops
}  // namespace weft
