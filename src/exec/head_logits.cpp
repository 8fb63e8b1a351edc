// exec/head_logits.cpp: logits of the last token of each row, for generation.
#include "exec/head.h"
#include "exec/memory_plan.h"
#include "graph/ops/head.h"

namespace weft {

HeadLogitsArgs head_logits_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  const int parts = node.as<HeadAttr>().parts;
  return {x.shape[0],
          x.shape[1],
          x.shape[2],
          v.value(node.outputs[0]).shape[1],
          x.dtype,
          v.at(node.inputs[0]),
          stacked(v, node.inputs, 1, parts),
          v.at<int32_t>(node.inputs[1 + static_cast<size_t>(parts)]),
          v.at<float>(node.outputs[0])};
}

namespace {

GemmArgs last_product(const HeadLogitsArgs& a, void* x) {
  GemmArgs g{};
  g.M = a.B;
  g.N = a.V;
  g.K = a.C;
  g.dtype = a.dtype;
  g.c_dtype = Dtype::kF32;
  g.a = x;
  g.lda = a.C;
  g.b = a.weight;
  g.b_transposed = true;
  g.c = single_stack(a.logits, a.B, a.V);
  return g;
}

}  // namespace

size_t head_logits_workspace(const Kernels& kernels, const HeadLogitsArgs& a, int num_threads) {
  return static_cast<size_t>(align_up(a.B * a.C * dtype_bytes(a.dtype))) +
         kernels.gemm_workspace(last_product(a, nullptr), num_threads);
}

void run_head_logits(const Kernels& kernels, const Context& context, const HeadLogitsArgs& a) {
  head_kernels(kernels).take_rows(context,
                                  {a.B, a.T, a.C, a.dtype, a.x, a.last, context.workspace});
  kernels.gemm(after(context, align_up(a.B * a.C * dtype_bytes(a.dtype))),
               last_product(a, context.workspace));
}

}  // namespace weft
