// graph/ops/linear.h: products with stacked weights, and their gradients.
//
// linear: x, weights, biases -> y. linear_dx: dy, weights -> dx. linear_dw: dy, x -> gradients of
// weights. bias_grad: dy -> gradients of biases.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

struct LinearAttr {
  int parts = 1;          // weights that are stacked in this one product
  bool has_bias = false;  // a bias follows for each weight
  int64_t column = 0;     // weight and bias gradients: first column of dy that belongs to them
  int leaves = 0;      // linear_dx: number of leaves that parts form (exact mode), added in a tree
  int row_pieces = 0;  // number of pieces of the weight along its second dim
};
extern const OpRule kLinearOp, kLinearDxOp, kLinearDwOp, kBiasGradOp;

// The rules' tensor-parallel side (linear_local.cpp).
void localize_linear(Localizer* localizer, const Node& node);
void localize_linear_dx(Localizer* localizer, const Node& node);
void localize_weight_grad(Localizer* localizer, const Node& node);

namespace ops {
// x (B, T, K) times the stacked weights (N_i, K) -> (B, T, sum of N_i); biases: none, or one each.
Ref linear(Builder& g, Ref x, const std::vector<Ref>& weights, const std::vector<Ref>& biases);
}  // namespace ops
}  // namespace weft
