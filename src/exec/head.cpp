// exec/head.cpp: gathers the tokens with targets, then product, loss, and two products per chunk.
//
// Workspace: rows (which tokens), targets, losses, x of the chunk, logits of the chunk, dx of the
// chunk, an fp32 sum of dweight where gradients are stored in bf16 (so that chunks are added before
// the one rounding), the softmax's leaves of all ranks, and what the products need.
#include "exec/head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "exec/memory_plan.h"
#include "graph/ops/head.h"

namespace weft {

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

namespace {

bool sums_apart(const HeadArgs& a) { return a.dweight.count > 0 && a.grad_dtype != Dtype::kF32; }

HeadLayout lay_out(const Kernels& kernels, const HeadArgs& a, int num_threads) {
  const int64_t n = a.chunk_rows, size = dtype_bytes(a.dtype);
  HeadLayout l{};
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
  l.dx = take(a.dx ? n * a.C * dtype_bytes(a.dx_dtype) : 0);
  l.dweight = take(sums_apart(a) ? a.V * a.C * 4 : 0);
  l.leaves = take(is_split(a) ? a.num_ranks * n * stats_per_token(a) * 8 : 0);
  l.highest = take(is_split(a) ? n * 4 * (1 + a.weight.count) : 0);
  l.scale = take(is_split(a) ? n * 8 * (1 + a.weight.count) : 0);
  l.products = at;
  size_t most = kernels.gemm_workspace(logits_product(a, n, nullptr, nullptr), num_threads);
  if (a.with_gradient) {
    most = std::max(most, products_workspace(kernels, dx_products(a, n, nullptr, nullptr, nullptr),
                                             num_threads));
    most = std::max(
        most, kernels.gemm_workspace(
                  dweight_product(a, n, nullptr, nullptr, a.dweight, Dtype::kF32), num_threads));
  }
  l.total = at + align_up(static_cast<int64_t>(most));
  return l;
}

// fn(begin, end) over chunks of n elements, on all threads.
template <typename Fn>
void in_stretches(const Context& context, int64_t n, const Fn& fn) {
  constexpr int64_t kStretch = 1 << 16;
  context.pool->run((n + kStretch - 1) / kStretch, [&](int64_t task, int) {
    fn(task * kStretch, std::min(n, (task + 1) * kStretch));
  });
}

// The fp32 sum becomes (or is added to) the gradient.
void store_dweight(const Context& context, const HeadArgs& a, const float* sum, bool accumulate) {
  for (int p = 0; p < a.dweight.count; ++p) {
    auto* out = static_cast<Bf16*>(a.dweight.part[p]);
    const int64_t elements = a.dweight.rows[p] * a.C;
    in_stretches(context, elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = to_bf16(accumulate ? to_float(out[i]) + sum[i] : sum[i]);
      }
    });
    sum += elements;
  }
}

void zero(const Context& context, void* data, int64_t bytes) {
  auto* at = static_cast<char*>(data);
  in_stretches(context, bytes, [&](int64_t begin, int64_t end) {
    std::memset(at + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace

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

size_t head_workspace(const Kernels& kernels, const HeadArgs& args, int num_threads) {
  return static_cast<size_t>(lay_out(kernels, args, num_threads).total);
}

// One chunk of tokens in progress, and the offsets of its pieces in the workspace.
class Head::Chunk {
 public:
  Chunk(const Head& head, const Context& context)
      : head_(head),
        kernels_(*head.kernels_),
        context_(context),
        a_(head.args_),
        layout_(head.layout_),
        base_(context.workspace),
        products_(after(context, layout_.products)) {}

  int32_t* rows() const { return at<int32_t>(layout_.rows); }
  float* weight_sum() const { return at<float>(layout_.dweight); }

  void take(const int32_t* rows, int64_t n) {
    rows_ = rows;
    n_ = n;
    const int64_t bytes = a_.C * dtype_bytes(a_.dtype);
    for (int64_t i = 0; i < n; ++i) {
      targets()[i] = a_.targets[rows[i]];
      std::memcpy(at<std::byte>(layout_.x) + i * bytes,
                  static_cast<const std::byte*>(a_.x) + rows[i] * bytes,
                  static_cast<size_t>(bytes));
    }
  }

  void find_losses() {
    kernels_.gemm(products_, logits_product(a_, n_, base_ + layout_.x, logits()));
    if (is_split(a_)) {
      store_leaves();
      join_leaves();
      if (a_.with_gradient) differentiate_leaves();
    } else {
      kernels_.cross_entropy(context_, {n_, a_.V, a_.dtype, logits(), targets(), losses(),
                                        a_.with_gradient, a_.factor()});
    }
    for (int64_t i = 0; i < n_; ++i) a_.losses[rows_[i]] = losses()[i];
  }

  void find_dx() {
    const Context context = after(products_, head_.dx_.partial_bytes);
    for (GemmArgs call : head_.dx_.calls) {
      call.M = n_;
      kernels_.gemm(context, call);
    }
    const int64_t bytes = a_.C * dtype_bytes(a_.dx_dtype);
    for (int64_t i = 0; i < n_; ++i) {
      std::memcpy(static_cast<std::byte*>(a_.dx) + rows_[i] * bytes, base_ + layout_.dx + i * bytes,
                  static_cast<size_t>(bytes));
    }
  }

  void add_dweight(const Stack& dweight, bool accumulate) {
    GemmArgs g = dweight_product(a_, n_, logits(), base_ + layout_.x, dweight, Dtype::kF32);
    g.accumulate = accumulate;
    kernels_.gemm(products_, g);
  }

 private:
  template <typename T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  int32_t* targets() const { return at<int32_t>(layout_.targets); }
  float* losses() const { return at<float>(layout_.losses); }
  std::byte* logits() const { return base_ + layout_.logits; }
  float* highest() const { return at<float>(layout_.highest); }
  double* sums() const { return at<double>(layout_.scale); }
  std::byte* columns(int64_t first) const { return logits() + first * dtype_bytes(a_.dtype); }
  double* leaves_of(int rank) const {
    return at<double>(layout_.leaves) + rank * n_ * stats_per_token(a_);
  }

  // This rank's leaves of every token, then those of all ranks.
  void store_leaves() {
    const int me = a_.ranks ? a_.ranks->rank() : 0;
    double* mine = leaves_of(me);
    int64_t column = 0;
    for (int p = 0; p < a_.weight.count; ++p) {
      const int64_t width = a_.weight.rows[p];
      kernels_.softmax_stats(context_,
                             {n_, width, a_.V, a_.dtype, columns(column), highest(), sums()});
      for (int64_t i = 0; i < n_; ++i) {
        mine[i * stats_per_token(a_) + 2 * p] = highest()[i];
        mine[i * stats_per_token(a_) + 2 * p + 1] = sums()[i];
      }
      column += width;
    }
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t target = targets()[i] - a_.first_id;
      const bool is_here = target >= 0 && target < a_.V;
      mine[(i + 1) * stats_per_token(a_) - 1] =
          is_here ? load_element(logits(), a_.dtype, i * a_.V + target) : 0.0;
    }
    if (a_.ranks) a_.ranks->all_gather(mine, leaves_of(0), n_ * stats_per_token(a_) * 8);
  }

  // Maximum over all leaves, sums rescaled to it and added in a tree; then loss and scale.
  void join_leaves() {
    const int per_rank = a_.weight.count, count = per_rank * a_.num_ranks;
    auto* scale = reinterpret_cast<float*>(sums());
    constexpr int kMostLeaves = 256;
    if (count > kMostLeaves)
      throw BugError("the vocabulary has more pieces than the head supports");
    for (int64_t i = 0; i < n_; ++i) {
      double most = -std::numeric_limits<double>::infinity(), target = 0;
      for (int s = 0; s < count; ++s) most = std::max(most, leaf(i, s)[0]);
      for (int rank = 0; rank < a_.num_ranks; ++rank) {
        target += leaves_of(rank)[(i + 1) * stats_per_token(a_) - 1];
      }
      double tree[kMostLeaves];
      for (int s = 0; s < count; ++s) tree[s] = leaf(i, s)[1] * std::exp(leaf(i, s)[0] - most);
      for (int width = 1; width < count; width *= 2) {
        for (int s = 0; s + width < count; s += 2 * width) tree[s] += tree[s + width];
      }
      losses()[i] = static_cast<float>(std::log(tree[0]) + (most - target));
      highest()[i] = static_cast<float>(most);
      scale[i] = static_cast<float>(1.0 / tree[0]);
    }
  }

  // (maximum, sum) of leaf s of all ranks, of token i.
  const double* leaf(int64_t i, int s) const {
    const int per_rank = a_.weight.count;
    return leaves_of(s / per_rank) + i * stats_per_token(a_) + 2 * (s % per_rank);
  }

  void differentiate_leaves() {
    const auto* scale = reinterpret_cast<const float*>(sums());
    // Targets counted from the piece's first id; of another piece: -1.
    auto* local = reinterpret_cast<int32_t*>(highest() + n_);
    int64_t column = 0;
    for (int p = 0; p < a_.weight.count; ++p) {
      const int64_t width = a_.weight.rows[p];
      for (int64_t i = 0; i < n_; ++i) {
        const int64_t target = targets()[i] - a_.first_id - column;
        local[i] = target >= 0 && target < width ? static_cast<int32_t>(target) : -1;
      }
      kernels_.softmax_gradient(context_, {n_, width, a_.V, a_.dtype, columns(column), local,
                                           highest(), scale, a_.factor()});
      column += width;
    }
  }

  static Context after(const Context& c, int64_t bytes) {
    return {c.pool, c.workspace + bytes, c.workspace_bytes - static_cast<size_t>(bytes)};
  }

  const Head& head_;
  const Kernels& kernels_;
  const Context& context_;
  const HeadArgs& a_;
  const HeadLayout& layout_;
  std::byte* base_;
  Context products_;
  const int32_t* rows_ = nullptr;
  int64_t n_ = 0;
};

Head::Head(const Kernels& kernels, const HeadArgs& args, const Context& context)
    : kernels_(&kernels),
      args_(args),
      layout_(lay_out(kernels, args, context.pool->num_threads())) {
  std::byte* base = context.workspace;
  if (args.dx) {
    dx_ = dx_products(args, args.chunk_rows, base + layout_.logits, base + layout_.dx,
                      base + layout_.products);
  }
}

void Head::run(const Context& context, bool accumulate) const {
  const HeadArgs& a = args_;
  Chunk chunk(*this, context);
  int64_t count = 0;
  for (int64_t r = 0; r < a.R; ++r) {
    a.losses[r] = 0;
    if (a.targets[r] >= 0) chunk.rows()[count++] = static_cast<int32_t>(r);
  }
  if (a.dx) zero(context, a.dx, a.R * a.C * dtype_bytes(a.dx_dtype));
  const bool apart = sums_apart(a);
  Stack dweight = a.dweight;
  float* sum = chunk.weight_sum();
  for (int p = 0; apart && p < dweight.count; sum += dweight.rows[p++] * a.C) dweight.part[p] = sum;
  for (int p = 0; count == 0 && !accumulate && p < a.dweight.count; ++p) {
    zero(context, a.dweight.part[p], a.dweight.rows[p] * a.C * dtype_bytes(a.grad_dtype));
  }
  bool adds = !apart && accumulate;
  for (int64_t begin = 0; begin < count; begin += a.chunk_rows) {
    chunk.take(chunk.rows() + begin, std::min(a.chunk_rows, count - begin));
    chunk.find_losses();
    if (a.dx) chunk.find_dx();
    if (a.dweight.count > 0) chunk.add_dweight(dweight, adds);
    adds = true;
  }
  if (apart && count > 0) store_dweight(context, a, chunk.weight_sum(), accumulate);
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

GemmArgs last_product(const HeadLogitsArgs& a, void* x) {
  GemmArgs g{};
  g.M = a.B;
  g.N = a.V;
  g.K = a.C;
  g.dtype = a.dtype;
  g.c_dtype = Dtype::kF32;
  g.a = x;
  g.lda = a.C;
  g.b = single_stack(const_cast<void*>(a.weight), a.V, a.C);
  g.b_transposed = true;
  g.c = single_stack(a.logits, a.B, a.V);
  return g;
}

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
