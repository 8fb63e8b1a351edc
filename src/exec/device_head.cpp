// exec/device_head.cpp: products and small kernels queued chunk by chunk.
#include "exec/device_head.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "exec/memory_plan.h"

namespace weft {
namespace {

const std::byte* rows_from(const void* matrix, int64_t row, int64_t columns, Dtype dtype) {
  return static_cast<const std::byte*>(matrix) + row * columns * dtype_bytes(dtype);
}

// Several chunks are added in fp32 before the one rounding.
bool sums_apart(const HeadArgs& a) {
  return a.dweight.count > 0 && a.grad_dtype != Dtype::kF32 && a.chunk_rows < a.R;
}

Context after(const Context& c, int64_t bytes) {
  return {c.pool, c.workspace + bytes, c.workspace_bytes - static_cast<size_t>(bytes), c.stream};
}

}  // namespace

DeviceHead::Layout DeviceHead::lay_out(const Kernels& kernels, const HeadArgs& a) {
  const int64_t n = a.chunk_rows;
  Layout l{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + align_up(bytes)); };
  l.logits = take(n * a.V * dtype_bytes(a.dtype));
  l.dweight = take(sums_apart(a) ? a.V * a.C * 4 : 0);
  const int64_t split = is_split(a) ? 1 : 0;
  l.leaves = take(split * a.num_ranks * n * stats_per_token(a) * 8);
  l.highest = take(split * n * 4);
  l.sums = take(split * n * 8);
  l.scale = take(split * n * 4);
  l.local = take(split * n * 4);
  l.products = at;
  size_t most = kernels.gemm_workspace(logits_product(a, n, nullptr, nullptr), 1);
  if (a.with_gradient) {
    most = std::max(most,
                    products_workspace(kernels, dx_products(a, n, nullptr, nullptr, nullptr), 1));
    for (const Dtype dtype : {Dtype::kF32, a.grad_dtype}) {
      most = std::max(most, kernels.gemm_workspace(
                                dweight_product(a, n, nullptr, nullptr, a.dweight, dtype), 1));
    }
  }
  l.total = at + align_up(static_cast<int64_t>(most));
  return l;
}

size_t device_head_workspace(const Kernels& kernels, const HeadArgs& args) {
  return static_cast<size_t>(DeviceHead::lay_out(kernels, args).total);
}

DeviceHead::DeviceHead(const Kernels& kernels, const HeadArgs& args, const Context& context)
    : kernels_(kernels),
      args_(args),
      layout_(lay_out(kernels, args)),
      context_(context),
      products_(after(context, layout_.products)) {}

void DeviceHead::run(bool accumulate) const {
  const HeadArgs& a = args_;
  const bool apart = sums_apart(a);
  for (int64_t begin = 0; begin < a.R; begin += a.chunk_rows) {
    const int64_t n = std::min(a.chunk_rows, a.R - begin);
    find_losses(begin, n);
    if (!a.with_gradient) continue;
    if (a.dx) find_dx(begin, n);
    if (a.dweight.count > 0) find_dweight(begin, n, begin > 0 || (accumulate && !apart));
  }
  if (!apart) return;
  const float* sum = at<float>(layout_.dweight);
  for (int p = 0; p < a.dweight.count; ++p) {
    const int64_t elements = a.dweight.rows[p] * a.C;
    kernels_.device->store_sum(context_,
                               {elements, sum, a.dweight.part[p], a.grad_dtype, accumulate});
    sum += elements;
  }
}

void DeviceHead::find_losses(int64_t begin, int64_t n) const {
  const HeadArgs& a = args_;
  kernels_.gemm(products_,
                logits_product(a, n, rows_from(a.x, begin, a.C, a.dtype), at(layout_.logits)));
  if (is_split(a)) return join_leaves(begin, n);
  kernels_.cross_entropy(context_, {n, a.V, a.dtype, at(layout_.logits), a.targets + begin,
                                    a.losses + begin, a.with_gradient, a.factor()});
}

void DeviceHead::join_leaves(int64_t begin, int64_t n) const {
  const HeadArgs& a = args_;
  const DeviceKernels& device = *kernels_.device;
  auto* leaves = at<double>(layout_.leaves);  // of all ranks
  double* mine = leaves + (a.ranks ? a.ranks->rank() : 0) * n * stats_per_token(a);
  auto* highest = at<float>(layout_.highest);
  auto* sums = at<double>(layout_.sums);
  auto* scale = at<float>(layout_.scale);
  auto* local = at<int32_t>(layout_.local);
  const int32_t* targets = a.targets + begin;
  const int64_t size = dtype_bytes(a.dtype);
  int64_t column = 0;
  for (int p = 0; p < a.weight.count; ++p) {
    std::byte* logits = at(layout_.logits) + column * size;
    kernels_.softmax_stats(context_, {n, a.weight.rows[p], a.V, a.dtype, logits, highest, sums});
    device.store_leaf_stats(context_, {n, stats_per_token(a), p, highest, sums, mine});
    column += a.weight.rows[p];
  }
  device.store_target_logit(context_, {n, stats_per_token(a), a.V, a.dtype, at(layout_.logits),
                                       targets, a.first_id, mine});
  if (a.ranks) a.ranks->all_gather(mine, leaves, n * stats_per_token(a) * 8);
  device.join_leaves(context_, {n, stats_per_token(a), a.num_ranks, leaves, targets,
                                a.losses + begin, highest, scale});
  if (!a.with_gradient) return;
  column = 0;
  for (int p = 0; p < a.weight.count; ++p) {
    const int64_t width = a.weight.rows[p];
    device.local_targets(context_, {n, a.first_id + column, width, targets, local});
    kernels_.softmax_gradient(context_, {n, width, a.V, a.dtype, at(layout_.logits) + column * size,
                                         local, highest, scale, a.factor()});
    column += width;
  }
}

void DeviceHead::find_dx(int64_t begin, int64_t n) const {
  const HeadArgs& a = args_;
  auto* dx = const_cast<std::byte*>(rows_from(a.dx, begin, a.C, a.dx_dtype));
  const Products made = dx_products(a, n, at(layout_.logits), dx, products_.workspace);
  const Context context = after(products_, made.partial_bytes);
  for (const GemmArgs& call : made.calls) kernels_.gemm(context, call);
}

void DeviceHead::find_dweight(int64_t begin, int64_t n, bool accumulate) const {
  const HeadArgs& a = args_;
  Stack to = a.dweight;
  if (sums_apart(a)) {
    auto* sum = at<float>(layout_.dweight);
    for (int p = 0; p < to.count; sum += to.rows[p++] * a.C) to.part[p] = sum;
  }
  const Dtype dtype = sums_apart(a) ? Dtype::kF32 : a.grad_dtype;
  GemmArgs g =
      dweight_product(a, n, at(layout_.logits), rows_from(a.x, begin, a.C, a.dtype), to, dtype);
  g.accumulate = accumulate;
  kernels_.gemm(products_, g);
}

void run_device_head_logits(const Kernels& kernels, const Context& context,
                            const HeadLogitsArgs& a) {
  kernels.device->take_rows(context, {a.B, a.T, a.C, a.dtype, a.x, a.last, context.workspace});
  kernels.gemm(after(context, align_up(a.B * a.C * dtype_bytes(a.dtype))),
               last_product(a, context.workspace));
}

}  // namespace weft
