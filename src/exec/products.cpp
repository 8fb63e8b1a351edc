// exec/products.cpp: turns pieces of weights into calls, and leaves into trees of calls.
#include "exec/products.h"

#include <algorithm>

#include "base/error.h"
#include "exec/memory_plan.h"
#include "exec/slots.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

GemmArgs plain_linear(const View& v, const Node& node) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref x = node.inputs[0], y = node.outputs[0];
  GemmArgs a{};
  a.M = v.tokens(x);
  a.N = v.value(y).shape.back();
  a.K = v.value(x).shape.back();
  a.dtype = v.value(x).dtype;
  a.c_dtype = v.value(y).dtype;
  a.a = v.at(x);
  a.lda = a.K;
  a.b = stacked(v, node.inputs, 1, attr.parts);
  a.b_transposed = true;
  a.c = single_stack(v.at(y), a.M, a.N);
  for (int p = 0; attr.has_bias && p < attr.parts; ++p) {
    a.bias[p] = v.at(node.inputs[static_cast<size_t>(1 + attr.parts + p)]);
  }
  return a;
}

GemmArgs plain_dx(const View& v, const Node& node) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  GemmArgs a{};
  a.M = v.tokens(dy);
  a.N = v.value(dx).shape.back();
  a.K = v.value(dy).shape.back();
  a.dtype = v.value(dy).dtype;
  a.c_dtype = v.value(dx).dtype;
  a.a = v.at(dy);
  a.lda = a.K;
  a.b = stacked(v, node.inputs, 1, attr.parts);
  a.c = single_stack(v.at(dx), a.M, a.N);
  return a;
}

GemmArgs plain_dw(const View& v, const Node& node) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref dy = node.inputs[0], x = node.inputs[1];
  GemmArgs a{};
  a.c = stacked(v, node.outputs, 0, attr.parts);
  for (int p = 0; p < a.c.count; ++p) a.M += a.c.rows[p];
  a.N = v.value(x).shape.back();
  a.K = v.tokens(dy);
  a.dtype = v.value(dy).dtype;
  a.c_dtype = v.value(node.outputs[0]).dtype;
  a.a = v.at_column(dy, attr.column);
  a.lda = v.value(dy).shape.back();
  a.a_transposed = true;
  a.b = single_stack(v.at(x), a.K, a.N);
  return a;
}

// Columns of x from `column` on, as the left operand of a product that yields y; b and K are set
// later.
GemmArgs times_columns(const View& v, Ref x, Ref y, int64_t column) {
  GemmArgs a{};
  a.M = v.tokens(x);
  a.N = v.value(y).shape.back();
  a.dtype = v.value(x).dtype;
  a.a = v.at_column(x, column);
  a.lda = v.value(x).shape.back();
  return a;
}

// y = sum over pieces of x[:, columns of the piece] · piece^T, one leaf each.
Products row_cut_linear(const View& v, const Node& node, std::byte* workspace) {
  const Ref x = node.inputs[0], y = node.outputs[0];
  std::vector<std::vector<GemmArgs>> leaves;
  int64_t column = 0;
  for (int p = 0; p < node.as<LinearAttr>().row_pieces; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a = times_columns(v, x, y, column);
    a.K = v.value(w).shape[1];
    a.b = single_stack(v.at(w), a.N, a.K);
    a.b_transposed = true;
    column += a.K;
    leaves.push_back({a});
  }
  if (node.as<LinearAttr>().has_bias) leaves.back().back().bias[0] = v.at(node.inputs.back());
  Products made;
  add_leaves(leaves, single_stack(v.at(y), v.tokens(x), v.value(y).shape.back()), v.value(y).dtype,
             workspace, &made);
  return made;
}

// dx = sum over leaves of the sum over their parts of dy[:, columns of the part] · part.
Products column_cut_dx(const View& v, const Node& node, std::byte* workspace) {
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  const int num_leaves = node.as<LinearAttr>().leaves;
  std::vector<std::vector<GemmArgs>> leaves(static_cast<size_t>(num_leaves));
  int64_t column = 0;
  for (int p = 0; p < node.as<LinearAttr>().parts; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a = times_columns(v, dy, dx, column);
    a.K = v.value(w).shape[0];
    a.b = single_stack(v.at(w), a.K, a.N);
    column += a.K;
    leaves[static_cast<size_t>(p % num_leaves)].push_back(a);
  }
  Products made;
  add_leaves(leaves, single_stack(v.at(dx), v.tokens(dy), v.value(dx).shape.back()),
             v.value(dx).dtype, workspace, &made);
  return made;
}

// dx[:, columns of the piece] = dy · piece.
Products row_cut_dx(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  Products made;
  int64_t column = 0;
  for (int p = 0; p < node.as<LinearAttr>().row_pieces; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a{};
    a.M = v.tokens(dy);
    a.N = v.value(w).shape[1];
    a.K = v.value(dy).shape.back();
    a.dtype = v.value(dy).dtype;
    a.c_dtype = v.value(dx).dtype;
    a.a = v.at(dy);
    a.lda = a.K;
    a.b = single_stack(v.at(w), a.K, a.N);
    a.c = single_stack(const_cast<std::byte*>(v.at_column(dx, column)), a.M,
                       v.value(dx).shape.back());
    column += a.N;
    made.calls.push_back(a);
  }
  return made;
}

// dpiece = dy^T · x[:, columns of the piece].
Products row_cut_dw(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], x = node.inputs[1];
  Products made;
  int64_t column = 0;
  for (Ref g : node.outputs) {
    GemmArgs a{};
    a.M = v.value(dy).shape.back();
    a.N = v.value(g).shape[1];
    a.K = v.tokens(dy);
    a.dtype = v.value(dy).dtype;
    a.c_dtype = v.value(g).dtype;
    a.a = v.at(dy);
    a.lda = a.M;
    a.a_transposed = true;
    a.b =
        single_stack(const_cast<std::byte*>(v.at_column(x, column)), a.K, v.value(x).shape.back());
    a.c = single_stack(v.at(g), a.M, a.N);
    column += a.N;
    made.calls.push_back(a);
  }
  return made;
}

Stack moved(const Stack& stack, int64_t elements) {
  Stack s = stack;
  for (int p = 0; p < s.count; ++p) {
    if (s.part[p]) s.part[p] = static_cast<float*>(s.part[p]) + elements;
  }
  return s;
}

void add_addend(GemmArgs* call, const Stack& addend) {
  ensure(call->num_addends < kMaxAddends, "a tree of too many levels");
  call->addend[call->num_addends++] = addend;
}

}  // namespace

void add_leaves(const std::vector<std::vector<GemmArgs>>& leaves, Stack c, Dtype c_dtype,
                std::byte* workspace, Products* products) {
  const int64_t M = leaves[0][0].M, N = leaves[0][0].N, bytes = align_up(M * N * 4);
  const auto temporary = [&](int slot) {
    products->partial_bytes = std::max(products->partial_bytes, (slot + 1) * bytes);
    return single_stack(workspace ? workspace + slot * bytes : nullptr, M, N);
  };
  for (size_t s = 0; s < leaves.size(); ++s) {
    const SlotStep step = next_slot(static_cast<int64_t>(s), 1);
    const bool is_last = s + 1 == leaves.size();
    ensure(!is_last || step.slot == 0, "leaves are a power of two");
    // Where this leaf consists of several products, they are summed in a free slot.
    const int growing = step.first + 1;
    for (size_t p = 0; p < leaves[s].size(); ++p) {
      GemmArgs call = leaves[s][p];
      if (p + 1 < leaves[s].size()) {
        call.c = temporary(growing);
        call.c_dtype = Dtype::kF32;
        call.accumulate = p > 0;
        products->calls.push_back(call);
        continue;
      }
      if (p > 0) add_addend(&call, temporary(growing));
      for (int i = 0; i < step.count; ++i) add_addend(&call, temporary(step.first - i));
      if (step.adds_slot && is_last) add_addend(&call, temporary(step.slot));
      call.accumulate = step.adds_slot && !is_last;
      call.c = is_last ? c : temporary(step.slot);
      call.c_dtype = is_last ? c_dtype : Dtype::kF32;
      products->calls.push_back(call);
    }
  }
}

GemmArgs into_slots(GemmArgs call, int64_t leaf, int64_t group_leaves, int64_t slot_stride) {
  const SlotStep step = next_slot(leaf, group_leaves);
  const Stack base = call.c;
  call.num_addends = 0;
  for (int i = 0; i < step.count; ++i) {
    add_addend(&call, moved(base, (step.first - i) * slot_stride));
  }
  call.c = moved(base, step.slot * slot_stride);
  call.accumulate = step.adds_slot;
  return call;
}

Products make_products(const View& v, const Node& node, std::byte* workspace) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const bool row_cut = attr.row_pieces > 0;
  if (node.op == &kLinearOp)
    return row_cut ? row_cut_linear(v, node, workspace) : Products{{plain_linear(v, node)}, 0};
  if (node.op == &kLinearDwOp)
    return row_cut ? row_cut_dw(v, node) : Products{{plain_dw(v, node)}, 0};
  ensure(node.op == &kLinearDxOp, fmt::format("[{}] is not a product", op_name(node.op)));
  if (row_cut) return row_cut_dx(v, node);
  return attr.leaves > 0 ? column_cut_dx(v, node, workspace) : Products{{plain_dx(v, node)}, 0};
}

size_t products_workspace(const Kernels& kernels, const Products& products, int num_threads) {
  size_t most = 0;
  for (const GemmArgs& call : products.calls) {
    most = std::max(most, kernels.gemm_workspace(call, num_threads));
  }
  return static_cast<size_t>(products.partial_bytes) + most;
}

}  // namespace weft
