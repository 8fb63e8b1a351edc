// exec/head.cpp: selects rows, then per chunk logits, losses, dx and dweight.
//
// Workspace: on the CPU which tokens have a target, and targets, losses, x and dx of the chunk; the
// logits of the chunk, an fp32 sum of dweight where gradients are kept in fewer bits and there are
// several chunks (so that they are added before the one rounding), the softmax's leaves of all
// ranks, and what the products need.
#include "exec/head.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/memory_plan.h"

namespace weft {
namespace {

bool gathers(const Kernels& kernels) { return !kernels.device; }

bool sums_apart(const HeadArgs& a) {
  return a.dweight.count > 0 && a.grad_dtype != Dtype::kF32 && a.chunk_rows < a.R;
}

size_t largest_product(const Kernels& kernels, const HeadArgs& a, int num_threads) {
  const int64_t n = a.chunk_rows;
  size_t most = kernels.gemm_workspace(logits_product(a, n, nullptr, nullptr), num_threads);
  if (!a.with_gradient) return most;
  const Products dx = dx_products(a, n, nullptr, nullptr, nullptr);
  most = std::max(most, products_workspace(kernels, dx, num_threads));
  for (const Dtype dtype : {Dtype::kF32, a.grad_dtype}) {
    const GemmArgs dweight = dweight_product(a, n, nullptr, nullptr, a.dweight, dtype);
    most = std::max(most, kernels.gemm_workspace(dweight, num_threads));
  }
  return most;
}

HeadLayout lay_out(const Kernels& kernels, const HeadArgs& a, int num_threads) {
  const int64_t n = a.chunk_rows, size = dtype_bytes(a.dtype);
  const int64_t gathered = gathers(kernels) ? 1 : 0, split = is_split(a) ? 1 : 0;
  HeadLayout l{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + align_up(bytes)); };
  l.rows = take(gathered * a.R * 4);
  l.targets = take(gathered * n * 4);
  l.losses = take(gathered * n * 4);
  l.x = take(gathered * n * a.C * size);
  l.logits = take(n * a.V * size);
  l.dx = take(a.dx ? gathered * n * a.C * dtype_bytes(a.dx_dtype) : 0);
  l.dweight = take(sums_apart(a) ? a.V * a.C * 4 : 0);
  l.leaves = take(split * a.num_ranks * n * stats_per_token(a) * 8);
  l.highest = take(split * n * 4);
  l.sums = take(split * n * 8);
  l.scale = take(split * n * 4);
  l.local = take(split * n * 4);
  l.products = at;
  l.total = at + align_up(static_cast<int64_t>(largest_product(kernels, a, num_threads)));
  return l;
}

template <typename T>
T* row_of(T* matrix, int64_t row, int64_t columns, Dtype dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(matrix) + row * columns * dtype_bytes(dtype);
}

// On the CPU, by all threads.
void zero(const Context& context, void* data, int64_t bytes) {
  constexpr int64_t kStretch = 1 << 16;
  auto* at = static_cast<char*>(data);
  context.pool->run((bytes + kStretch - 1) / kStretch, [&](int64_t task, int) {
    const int64_t begin = task * kStretch, end = std::min(bytes, begin + kStretch);
    std::memset(at + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace

size_t head_workspace(const Kernels& kernels, const HeadArgs& args, int num_threads) {
  return static_cast<size_t>(lay_out(kernels, args, num_threads).total);
}

Head::Head(const Kernels& kernels, const HeadArgs& args, const Context& context)
    : kernels_(&kernels),
      steps_(head_kernels(kernels)),
      args_(args),
      gathers_(gathers(kernels)),
      layout_(lay_out(kernels, args, context.pool->num_threads())),
      context_(context),
      products_(after(context, layout_.products)) {
  const int64_t rows = gathers_ ? args.chunk_rows : args.R;
  for (int64_t begin = 0; args.dx && begin < rows; begin += args.chunk_rows) {
    const int64_t n = std::min(args.chunk_rows, rows - begin);
    void* to = gathers_ ? at(layout_.dx) : row_of(args.dx, begin, args.C, args.dx_dtype);
    dx_.push_back(dx_products(args, n, at(layout_.logits), to, products_.workspace));
  }
}

void Head::run(bool accumulate) const {
  const HeadArgs& a = args_;
  const int64_t count = choose_rows();
  for (int64_t begin = 0; begin < count; begin += a.chunk_rows) {
    const Chunk chunk = take(begin, std::min(a.chunk_rows, count - begin));
    find_losses(chunk);
    if (a.dx) find_dx(chunk);
    if (a.dweight.count > 0) find_dweight(chunk, begin + chunk.n == count, accumulate);
  }
  if (sums_apart(a) && !gathers_) store_dweight(accumulate);
  for (int p = 0; count == 0 && !accumulate && p < a.dweight.count; ++p) {
    zero(context_, a.dweight.part[p], a.dweight.rows[p] * a.C * dtype_bytes(a.grad_dtype));
  }
}

// How many rows are computed. Gathered: which; the others have no loss and no gradient.
int64_t Head::choose_rows() const {
  const HeadArgs& a = args_;
  if (!gathers_) return a.R;
  auto* rows = at<int32_t>(layout_.rows);
  int64_t count = 0;
  for (int64_t r = 0; r < a.R; ++r) {
    a.losses[r] = 0;
    if (a.targets[r] >= 0) rows[count++] = static_cast<int32_t>(r);
  }
  if (a.dx) zero(context_, a.dx, a.R * a.C * dtype_bytes(a.dx_dtype));
  return count;
}

Head::Chunk Head::take(int64_t begin, int64_t n) const {
  const HeadArgs& a = args_;
  if (!gathers_)
    return {begin, n, row_of(a.x, begin, a.C, a.dtype), a.targets + begin, a.losses + begin};
  const int32_t* rows = at<int32_t>(layout_.rows) + begin;
  auto* targets = at<int32_t>(layout_.targets);
  for (int64_t i = 0; i < n; ++i) targets[i] = a.targets[rows[i]];
  steps_.take_rows(context_, {n, 0, a.C, a.dtype, a.x, rows, at(layout_.x)});
  return {begin, n, at(layout_.x), targets, at<float>(layout_.losses)};
}

void Head::find_losses(const Chunk& chunk) const {
  const HeadArgs& a = args_;
  kernels_->gemm(products_, logits_product(a, chunk.n, chunk.x, at(layout_.logits)));
  if (is_split(a)) {
    auto* leaves = at<double>(layout_.leaves);  // of all ranks
    store_leaves(chunk, leaves);
    steps_.join_leaves(
        context_, {chunk.n, stats_per_token(a), a.num_ranks, leaves, chunk.targets, chunk.losses,
                   at<float>(layout_.highest), at<float>(layout_.scale)});
    if (a.with_gradient) differentiate_leaves(chunk);
  } else {
    kernels_->cross_entropy(context_, {chunk.n, a.V, a.dtype, at(layout_.logits), chunk.targets,
                                       chunk.losses, a.with_gradient, a.factor()});
  }
  const int32_t* rows = at<int32_t>(layout_.rows) + chunk.begin;
  for (int64_t i = 0; gathers_ && i < chunk.n; ++i) a.losses[rows[i]] = chunk.losses[i];
}

// This rank's leaves of every token, then those of all ranks.
void Head::store_leaves(const Chunk& chunk, double* leaves) const {
  const HeadArgs& a = args_;
  const int64_t n = chunk.n, stats = stats_per_token(a);
  double* mine = leaves + (a.ranks ? a.ranks->rank() : 0) * n * stats;
  auto* highest = at<float>(layout_.highest);
  auto* sums = at<double>(layout_.sums);
  int64_t column = 0;
  for (int p = 0; p < a.weight.count; ++p) {
    std::byte* logits = at(layout_.logits) + column * dtype_bytes(a.dtype);
    kernels_->softmax_stats(context_, {n, a.weight.rows[p], a.V, a.dtype, logits, highest, sums});
    steps_.store_leaf_stats(context_, {n, stats, p, highest, sums, mine});
    column += a.weight.rows[p];
  }
  steps_.store_target_logit(
      context_, {n, stats, a.V, a.dtype, at(layout_.logits), chunk.targets, a.first_id, mine});
  if (a.ranks) a.ranks->all_gather(mine, leaves, n * stats * 8);
}

void Head::differentiate_leaves(const Chunk& chunk) const {
  const HeadArgs& a = args_;
  auto* local = at<int32_t>(layout_.local);
  int64_t column = 0;
  for (int p = 0; p < a.weight.count; ++p) {
    const int64_t width = a.weight.rows[p];
    std::byte* logits = at(layout_.logits) + column * dtype_bytes(a.dtype);
    steps_.local_targets(context_, {chunk.n, a.first_id + column, width, chunk.targets, local});
    kernels_->softmax_gradient(
        context_, {chunk.n, width, a.V, a.dtype, logits, local, at<float>(layout_.highest),
                   at<float>(layout_.scale), a.factor()});
    column += width;
  }
}

void Head::find_dx(const Chunk& chunk) const {
  const HeadArgs& a = args_;
  const Products& made = dx_[gathers_ ? 0 : static_cast<size_t>(chunk.begin / a.chunk_rows)];
  const Context context = after(products_, made.partial_bytes);
  for (GemmArgs call : made.calls) {
    call.M = chunk.n;
    kernels_->gemm(context, call);
  }
  const int32_t* rows = at<int32_t>(layout_.rows) + chunk.begin;
  const int64_t bytes = a.C * dtype_bytes(a.dx_dtype);
  for (int64_t i = 0; gathers_ && i < chunk.n; ++i) {
    std::memcpy(row_of(a.dx, rows[i], a.C, a.dx_dtype), at(layout_.dx) + i * bytes,
                static_cast<size_t>(bytes));
  }
}

// Where chunks are summed in fp32, the last product on the CPU adds its own to the sum and stores
// the gradient: the bits of store_dweight without its pass over memory.
void Head::find_dweight(const Chunk& chunk, bool is_last, bool accumulate) const {
  const HeadArgs& a = args_;
  const bool is_first = chunk.begin == 0, apart = sums_apart(a);
  Stack sums = a.dweight;
  auto* sum = at<float>(layout_.dweight);
  for (int p = 0; apart && p < sums.count; sum += sums.rows[p++] * a.C) sums.part[p] = sum;
  const bool to_sum = apart && !(is_last && gathers_);
  GemmArgs g = dweight_product(a, chunk.n, at(layout_.logits), chunk.x, to_sum ? sums : a.dweight,
                               to_sum ? Dtype::kF32 : a.grad_dtype);
  g.accumulate = apart ? (to_sum ? !is_first : accumulate) : !is_first || accumulate;
  if (apart && !to_sum && !is_first) g.addend[g.num_addends++] = sums;
  kernels_->gemm(products_, g);
}

// On a GPU: the fp32 sum becomes (or is added to) the gradient.
void Head::store_dweight(bool accumulate) const {
  const HeadArgs& a = args_;
  const float* sum = at<float>(layout_.dweight);
  for (int p = 0; p < a.dweight.count; ++p) {
    const int64_t elements = a.dweight.rows[p] * a.C;
    kernels_->device->store_sum(context_,
                                {elements, sum, a.dweight.part[p], a.grad_dtype, accumulate});
    sum += elements;
  }
}

}  // namespace weft
