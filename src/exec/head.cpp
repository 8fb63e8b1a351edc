// exec/head.cpp: gather the tokens that count, then product, loss, and two products a chunk.
//
// Workspace: rows (which tokens), targets, losses, x of the chunk, logits of the chunk, dx of the
// chunk, an fp32 sum of dweight where gradients are kept in bf16 (so that chunks are added before
// the one rounding), and what the products need.
#include "exec/head.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/memory_plan.h"

namespace weft {
namespace {

struct Layout {
  int64_t rows, targets, losses, x, logits, dx, dweight, products, total;
};

GemmArgs logits_product(const HeadArgs& a, int64_t n, void* x, void* logits) {
  GemmArgs g{};
  g.M = n;
  g.N = a.V;
  g.K = a.C;
  g.dtype = g.c_dtype = a.dtype;
  g.a = x;
  g.lda = a.C;
  g.b = {{const_cast<void*>(a.weight)}, {a.V}, 1, a.C};
  g.b_transposed = true;
  g.c = {{logits}, {n}, 1, a.V};
  return g;
}

GemmArgs dx_product(const HeadArgs& a, int64_t n, void* dlogits, void* dx) {
  GemmArgs g{};
  g.M = n;
  g.N = a.C;
  g.K = a.V;
  g.dtype = g.c_dtype = a.dtype;
  g.a = dlogits;
  g.lda = a.V;
  g.b = {{const_cast<void*>(a.weight)}, {a.V}, 1, a.C};
  g.c = {{dx}, {n}, 1, a.C};
  return g;
}

GemmArgs dweight_product(const HeadArgs& a, int64_t n, void* dlogits, void* x, void* dweight,
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
  g.b = {{x}, {n}, 1, a.C};
  g.c = {{dweight}, {a.V}, 1, a.C};
  return g;
}

bool sums_apart(const HeadArgs& a) { return a.dweight && a.grad_dtype != Dtype::kF32; }

Layout lay_out(const Kernels& kernels, const HeadArgs& a, int num_threads) {
  const int64_t n = a.chunk_rows, size = dtype_bytes(a.dtype);
  Layout l{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t here = at;
    at += align_up(bytes);
    return here;
  };
  l.rows = take(a.R * 4);
  l.targets = take(n * 4);
  l.losses = take(n * 4);
  l.x = take(n * a.C * size);
  l.logits = take(n * a.V * size);
  l.dx = take(a.dx ? n * a.C * size : 0);
  l.dweight = take(sums_apart(a) ? a.V * a.C * 4 : 0);
  l.products = at;
  size_t most = kernels.gemm_workspace(logits_product(a, n, nullptr, nullptr), num_threads);
  if (a.with_gradient) {
    most = std::max(most, kernels.gemm_workspace(dx_product(a, n, nullptr, nullptr), num_threads));
    most = std::max(
        most, kernels.gemm_workspace(dweight_product(a, n, nullptr, nullptr, nullptr, Dtype::kF32),
                                     num_threads));
  }
  l.total = at + align_up(static_cast<int64_t>(most));
  return l;
}

// The fp32 sum becomes (or is added to) the gradient, a stretch a task.
void store_dweight(const Context& context, const HeadArgs& a, const float* sum) {
  constexpr int64_t kStretch = 1 << 14;
  const int64_t n = a.V * a.C;
  auto* out = static_cast<Bf16*>(a.dweight);
  context.pool->run((n + kStretch - 1) / kStretch, [&](int64_t task, int) {
    const int64_t end = std::min(n, (task + 1) * kStretch);
    for (int64_t i = task * kStretch; i < end; ++i) {
      out[i] = to_bf16(a.accumulate ? to_float(out[i]) + sum[i] : sum[i]);
    }
  });
}

void zero_rows(const Context& context, void* data, int64_t bytes) {
  constexpr int64_t kStretch = 1 << 18;
  auto* at = static_cast<char*>(data);
  context.pool->run((bytes + kStretch - 1) / kStretch, [&](int64_t task, int) {
    const int64_t begin = task * kStretch;
    std::memset(at + begin, 0, static_cast<size_t>(std::min(kStretch, bytes - begin)));
  });
}

}  // namespace

HeadArgs head_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  const Value& weight = v.value(node.inputs[1]);
  HeadArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.V = weight.shape[0];
  a.chunk_rows = std::min(a.R, node.attr.chunk_rows);
  a.dtype = x.dtype;
  a.x = v.at(node.inputs[0]);
  a.weight = v.at(node.inputs[1]);
  a.targets = v.at<int32_t>(node.inputs[2]);
  a.losses = v.at<float>(node.outputs[0]);
  a.with_gradient = node.op == Op::kHeadLossGrad;
  a.grad_dtype = Dtype::kF32;
  if (a.with_gradient) {
    // While planning there are no pointers yet: a mark keeps "wanted" apart from "absent".
    static std::byte wanted;
    const auto pointer = [&](Ref r) -> void* { return !r ? nullptr : v.at(r) ? v.at(r) : &wanted; };
    a.dx = pointer(node.outputs[1]);
    a.dweight = pointer(node.outputs[2]);
    if (node.outputs[2]) a.grad_dtype = v.value(node.outputs[2]).dtype;
  }
  return a;
}

size_t head_workspace(const Kernels& kernels, const HeadArgs& args, int num_threads) {
  return static_cast<size_t>(lay_out(kernels, args, num_threads).total);
}

void run_head(const Kernels& kernels, const Context& context, const HeadArgs& a) {
  const Layout l = lay_out(kernels, a, context.pool->num_threads());
  std::byte* base = context.workspace;
  auto* rows = reinterpret_cast<int32_t*>(base + l.rows);
  auto* targets = reinterpret_cast<int32_t*>(base + l.targets);
  auto* losses = reinterpret_cast<float*>(base + l.losses);
  void *x = base + l.x, *logits = base + l.logits, *dx = base + l.dx;
  const Context products{context.pool, base + l.products,
                         context.workspace_bytes - static_cast<size_t>(l.products)};
  const int64_t row_bytes = a.C * dtype_bytes(a.dtype);

  int64_t count = 0;
  for (int64_t r = 0; r < a.R; ++r) {
    a.losses[r] = 0;
    if (a.targets[r] >= 0) rows[count++] = static_cast<int32_t>(r);
  }
  if (a.dx) zero_rows(context, a.dx, a.R * row_bytes);
  void* dweight = sums_apart(a) ? base + l.dweight : a.dweight;
  bool accumulate = !sums_apart(a) && a.accumulate;
  if (a.dweight && count == 0 && !a.accumulate) {
    zero_rows(context, a.dweight, a.V * a.C * dtype_bytes(a.grad_dtype));
  }
  for (int64_t begin = 0; begin < count; begin += a.chunk_rows) {
    const int64_t n = std::min(a.chunk_rows, count - begin);
    const auto row_at = [&](const void* data, int64_t i) {
      return static_cast<const std::byte*>(data) + i * row_bytes;
    };
    for (int64_t i = 0; i < n; ++i) {
      targets[i] = a.targets[rows[begin + i]];
      std::memcpy(const_cast<std::byte*>(row_at(x, i)), row_at(a.x, rows[begin + i]),
                  static_cast<size_t>(row_bytes));
    }
    kernels.gemm(products, logits_product(a, n, x, logits));
    kernels.cross_entropy(context, {n, a.V, a.dtype, logits, targets, losses, a.with_gradient});
    for (int64_t i = 0; i < n; ++i) a.losses[rows[begin + i]] = losses[i];
    if (a.dx) {
      kernels.gemm(products, dx_product(a, n, logits, dx));
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(const_cast<std::byte*>(row_at(a.dx, rows[begin + i])), row_at(dx, i),
                    static_cast<size_t>(row_bytes));
      }
    }
    if (a.dweight) {
      GemmArgs g = dweight_product(a, n, logits, x, dweight, Dtype::kF32);
      g.accumulate = accumulate;
      kernels.gemm(products, g);
      accumulate = true;
    }
  }
  if (sums_apart(a) && count > 0) store_dweight(context, a, static_cast<const float*>(dweight));
}

HeadLogitsArgs head_logits_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  return {x.shape[0],
          x.shape[1],
          x.shape[2],
          v.value(node.inputs[1]).shape[0],
          x.dtype,
          v.at(node.inputs[0]),
          v.at(node.inputs[1]),
          v.at<int32_t>(node.inputs[2]),
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
  g.b = {{const_cast<void*>(a.weight)}, {a.V}, 1, a.C};
  g.b_transposed = true;
  g.c = {{a.logits}, {a.B}, 1, a.V};
  return g;
}

}  // namespace

size_t head_logits_workspace(const Kernels& kernels, const HeadLogitsArgs& a, int num_threads) {
  return static_cast<size_t>(align_up(a.B * a.C * dtype_bytes(a.dtype))) +
         kernels.gemm_workspace(last_product(a, nullptr), num_threads);
}

void run_head_logits(const Kernels& kernels, const Context& context, const HeadLogitsArgs& a) {
  const int64_t row_bytes = a.C * dtype_bytes(a.dtype);
  const int64_t used = align_up(a.B * row_bytes);
  for (int64_t b = 0; b < a.B; ++b) {
    std::memcpy(context.workspace + b * row_bytes,
                static_cast<const std::byte*>(a.x) + (b * a.T + a.last[b]) * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  const Context products{context.pool, context.workspace + used,
                         context.workspace_bytes - static_cast<size_t>(used)};
  kernels.gemm(products, last_product(a, context.workspace));
}

}  // namespace weft
