// exec/head_products.cpp: the head's arguments from its node, and its three products.
#include <algorithm>

#include "exec/head.h"
#include "graph/ops/head.h"

namespace weft {

HeadArgs head_args(const View& v, const Node& node, const Mesh& mesh) {
  const Value& x = v.value(node.inputs[0]);
  const HeadAttr& attr = node.as<HeadAttr>();
  const int parts = attr.parts;
  HeadArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.chunk_rows = std::min(a.R, attr.chunk_rows);
  a.dtype = a.dx_dtype = x.dtype;
  a.x = v.at(node.inputs[0]);
  a.weight = stacked(v, node.inputs, 1, parts);
  for (int p = 0; p < parts; ++p) a.V += a.weight.rows[p];
  a.first_id = v.first_row(node.inputs[1]);
  const auto targets = static_cast<size_t>(1 + parts);
  a.targets = v.at<int32_t>(node.inputs[targets]);
  if (node.inputs.size() > targets + 1) a.loss_scale = v.at<LossScale>(node.inputs[targets + 1]);
  a.losses = v.at<float>(node.outputs[0]);
  a.with_gradient = node.op == &kHeadLossGradOp;
  a.grad_dtype = Dtype::kF32;
  a.leaves = attr.leaves;
  a.num_ranks = mesh.tp;
  a.ranks = mesh.tensor;
  if (!a.with_gradient) return a;
  if (const Ref dx = node.outputs[1]) {
    a.dx = v.at(dx);
    a.dx_dtype = v.value(dx).dtype;
  }
  if (node.outputs[2]) {
    a.dweight = stacked(v, node.outputs, 2, parts);
    a.grad_dtype = v.value(node.outputs[2]).dtype;
  }
  return a;
}

GemmArgs logits_product(const HeadArgs& a, int64_t n, const void* x, void* logits) {
  GemmArgs g{};
  g.M = n;
  g.N = a.V;
  g.K = a.C;
  g.dtype = g.c_dtype = a.dtype;
  g.a = x;
  g.lda = a.C;
  g.b = a.weight;
  g.b_transposed = true;
  g.c = single_stack(logits, n, a.V);
  return g;
}

Products dx_products(const HeadArgs& a, int64_t n, std::byte* dlogits, void* dx,
                     std::byte* workspace) {
  GemmArgs g{};
  g.M = n;
  g.N = a.C;
  g.K = a.V;
  g.dtype = a.dtype;
  g.c_dtype = a.dx_dtype;
  g.a = dlogits;
  g.lda = a.V;
  g.b = a.weight;
  g.c = single_stack(dx, n, a.C);
  if (a.leaves == 0) return {{g}, 0};
  std::vector<std::vector<GemmArgs>> leaves;
  int64_t column = 0;
  for (int p = 0; p < a.weight.count; ++p) {
    GemmArgs leaf = g;
    leaf.K = a.weight.rows[p];
    leaf.a = dlogits ? dlogits + column * dtype_bytes(a.dtype) : nullptr;
    leaf.b = single_stack(a.weight.part[p], leaf.K, a.C);
    column += leaf.K;
    leaves.push_back({leaf});
  }
  Products made;
  add_leaves(leaves, g.c, a.dx_dtype, workspace, &made);
  return made;
}

GemmArgs dweight_product(const HeadArgs& a, int64_t n, void* dlogits, const void* x, Stack dweight,
                         Dtype dtype) {
  GemmArgs g{};
  g.M = a.V;
  g.N = a.C;
  g.K = n;
  g.dtype = a.dtype;
  g.c_dtype = dtype;
  g.a = dlogits;
  g.lda = a.V;
  g.a_transposed = true;
  g.b = single_stack(const_cast<void*>(x), n, a.C);
  g.c = dweight;
  return g;
}

}  // namespace weft
