// exec/products.cpp: turns pieces of weights into calls, and leaves into trees of calls.
#include "exec/products.h"

#include <algorithm>

#include "base/error.h"
#include "exec/memory_plan.h"
#include "exec/slots.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

// The weight as the right factor of y = x · w (a->K ins, a->N outs): transposed where it is (out,
// in).
void set_forward(const View& v, Ref w, const LinearAttr& attr, GemmArgs* a) {
  a->b_transposed = attr.order == WeightOrder::kOutIn;
  a->b = a->b_transposed ? single_stack(v.at(w), a->N, a->K) : single_stack(v.at(w), a->K, a->N);
}

// The same of dx = dy · w (a->K outs, a->N ins): transposed where it is (in, out).
void set_backward(const View& v, Ref w, const LinearAttr& attr, GemmArgs* a) {
  a->b_transposed = attr.order == WeightOrder::kInOut;
  a->b = a->b_transposed ? single_stack(v.at(w), a->N, a->K) : single_stack(v.at(w), a->K, a->N);
}

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
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref x = node.inputs[0], y = node.outputs[0];
  std::vector<std::vector<GemmArgs>> leaves;
  int64_t column = 0;
  for (int p = 0; p < attr.row_pieces; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a = times_columns(v, x, y, column);
    a.K = v.value(w).shape[in_dim(attr)];
    set_forward(v, w, attr, &a);
    column += a.K;
    leaves.push_back({a});
  }
  if (attr.has_bias) leaves.back().back().bias[0] = v.at(node.inputs.back());
  Products made;
  add_leaves(leaves, single_stack(v.at(y), v.tokens(x), v.value(y).shape.back()), v.value(y).dtype,
             workspace, &made);
  return made;
}

// dx = sum over leaves of the sum over their parts of dy[:, columns of the part] · part.
Products column_cut_dx(const View& v, const Node& node, std::byte* workspace) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  const int num_leaves = std::max(1, attr.leaves);
  std::vector<std::vector<GemmArgs>> leaves(static_cast<size_t>(num_leaves));
  int64_t column = 0;
  for (int p = 0; p < attr.parts; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a = times_columns(v, dy, dx, column);
    a.K = v.value(w).shape[out_dim(attr)];
    set_backward(v, w, attr, &a);
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
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  Products made;
  int64_t column = 0;
  for (int p = 0; p < attr.row_pieces; ++p) {
    const Ref w = node.inputs[static_cast<size_t>(1 + p)];
    GemmArgs a{};
    a.M = v.tokens(dy);
    a.N = v.value(w).shape[in_dim(attr)];
    a.K = v.value(dy).shape.back();
    a.dtype = v.value(dy).dtype;
    a.c_dtype = v.value(dx).dtype;
    a.a = v.at(dy);
    a.lda = a.K;
    set_backward(v, w, attr, &a);
    a.c = single_stack(const_cast<std::byte*>(v.at_column(dx, column)), a.M,
                       v.value(dx).shape.back());
    column += a.N;
    made.calls.push_back(a);
  }
  return made;
}

// Columns of an activation that is a factor of a weight's gradient.
struct Columns {
  const std::byte* data;
  int64_t count, ld;
};
Columns columns(const View& v, Ref r, int64_t begin, int64_t count) {
  return {v.at_column(r, begin), count, v.value(r).shape.back()};
}

// dw = dy^T · x, or where the weight is (in, out), x^T · dy.
GemmArgs weight_grad(const View& v, const Node& node, Ref dw, const Columns& dy, const Columns& x) {
  const bool is_in_out = node.as<LinearAttr>().order == WeightOrder::kInOut;
  const Columns &left = is_in_out ? x : dy, &right = is_in_out ? dy : x;
  GemmArgs a{};
  a.M = left.count;
  a.N = right.count;
  a.K = v.tokens(node.inputs[0]);
  a.dtype = v.value(node.inputs[0]).dtype;
  a.c_dtype = v.value(dw).dtype;
  a.a = left.data;
  a.lda = left.ld;
  a.a_transposed = true;
  a.b = single_stack(const_cast<std::byte*>(right.data), a.K, right.ld);
  a.c = single_stack(v.at(dw), a.M, a.N);
  return a;
}

// A product for every piece, with its columns of x.
Products row_cut_dw(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], x = node.inputs[1];
  const Columns all = columns(v, dy, 0, v.value(dy).shape.back());
  Products made;
  int64_t column = 0;
  for (Ref g : node.outputs) {
    const int64_t ins = v.value(g).shape[in_dim(node.as<LinearAttr>())];
    made.calls.push_back(weight_grad(v, node, g, all, columns(v, x, column, ins)));
    column += ins;
  }
  return made;
}

// Weights (in, out) cannot be stacked: a product for each, with its columns of y, or of dy.
Products in_out_linear(const View& v, const Node& node) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const Ref x = node.inputs[0], y = node.outputs[0];
  Products made;
  int64_t column = 0;
  for (size_t p = 0; p < static_cast<size_t>(attr.parts); ++p) {
    const Ref w = node.inputs[1 + p];
    GemmArgs a = times_columns(v, x, y, 0);
    a.K = v.value(x).shape.back();
    a.N = v.value(w).shape[1];
    a.c_dtype = v.value(y).dtype;
    set_forward(v, w, attr, &a);
    a.c =
        single_stack(const_cast<std::byte*>(v.at_column(y, column)), a.M, v.value(y).shape.back());
    if (attr.has_bias) a.bias[0] = v.at(node.inputs[1 + static_cast<size_t>(attr.parts) + p]);
    column += a.N;
    made.calls.push_back(a);
  }
  return made;
}

Products in_out_dw(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], x = node.inputs[1];
  const Columns all = columns(v, x, 0, v.value(x).shape.back());
  Products made;
  int64_t column = node.as<LinearAttr>().column;
  for (Ref g : node.outputs) {
    const int64_t outs = v.value(g).shape[1];
    made.calls.push_back(weight_grad(v, node, g, columns(v, dy, column, outs), all));
    column += outs;
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
  const bool row_cut = attr.row_pieces > 0, in_out = attr.order == WeightOrder::kInOut;
  if (node.op == &kLinearOp) {
    if (row_cut) return row_cut_linear(v, node, workspace);
    return in_out ? in_out_linear(v, node) : Products{{plain_linear(v, node)}, 0};
  }
  if (node.op == &kLinearDwOp) {
    if (row_cut) return row_cut_dw(v, node);
    return in_out ? in_out_dw(v, node) : Products{{plain_dw(v, node)}, 0};
  }
  ensure(node.op == &kLinearDxOp, fmt::format("[{}] is not a product", op_name(node.op)));
  if (row_cut) return row_cut_dx(v, node);
  return attr.leaves > 0 || in_out ? column_cut_dx(v, node, workspace)
                                   : Products{{plain_dx(v, node)}, 0};
}

size_t products_workspace(const Kernels& kernels, const Products& products, int num_threads) {
  size_t most = 0;
  for (const GemmArgs& call : products.calls) {
    most = std::max(most, kernels.gemm_workspace(call, num_threads));
  }
  return static_cast<size_t>(products.partial_bytes) + most;
}

}  // namespace weft
