// kernel/cuda/leaves.cu: the softmax over a vocabulary in leaves (exec/head.h), one thread per
// token.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLevels = 16;  // of the tree: 2^15 leaves and more

__device__ __forceinline__ int64_t token() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

__global__ void leaf_stats_kernel(LeafStatsArgs args) {
  const int64_t i = token();
  if (i >= args.n) return;
  double* to = args.leaves + i * args.stats_per_token + 2 * args.leaf;
  to[0] = static_cast<double>(args.highest[i]);
  to[1] = args.sum[i];
}

template <typename T>
__global__ void target_logit_kernel(TargetLogitArgs args) {
  const int64_t i = token();
  if (i >= args.n) return;
  const int64_t target = args.targets[i] - args.first_id;
  const bool is_here = args.targets[i] >= 0 && target >= 0 && target < args.V;
  const T* logits = static_cast<const T*>(args.logits) + i * args.V;
  args.leaves[(i + 1) * args.stats_per_token - 1] =
      is_here ? static_cast<double>(load_one(logits + target)) : 0.0;
}

// The tree of exec/head.cpp, leaf by leaf: two adjacent sums of 2^k leaves become one of 2^(k + 1)
// as soon as the second is complete; at the end the remaining ones are added, the last ones first.
__global__ void join_leaves_kernel(JoinLeavesArgs args) {
  const int64_t i = token();
  if (i >= args.n) return;
  const int per_rank = static_cast<int>((args.stats_per_token - 1) / 2);
  const auto rank_leaves = [&](int rank) {
    return args.leaves + (rank * args.n + i) * args.stats_per_token;
  };
  double most = -INFINITY, target = 0.0;
  for (int rank = 0; rank < args.num_ranks; ++rank) {
    const double* leaves = rank_leaves(rank);
    for (int s = 0; s < per_rank; ++s) most = fmax(most, leaves[2 * s]);
    target += leaves[2 * per_rank];
  }
  double tree[kLevels];
  int count = 0;
  for (int rank = 0; rank < args.num_ranks; ++rank) {
    const double* leaves = rank_leaves(rank);
    for (int s = 0; s < per_rank; ++s, ++count) {
      double sum = leaves[2 * s + 1] * exp(leaves[2 * s] - most);
      int level = 0;
      for (; (count >> level & 1) != 0; ++level) sum = tree[level] + sum;
      tree[level] = sum;
    }
  }
  double sum = 0.0;
  bool is_first = true;
  for (int level = 0; level < kLevels; ++level) {
    if ((count >> level & 1) == 0) continue;
    sum = is_first ? tree[level] : tree[level] + sum;
    is_first = false;
  }
  const bool counts = args.targets[i] >= 0;
  args.losses[i] = counts ? static_cast<float>(log(sum) + (most - target)) : 0.0f;
  args.highest[i] = static_cast<float>(most);
  args.scale[i] = counts ? static_cast<float>(1.0 / sum) : 0.0f;
}

__global__ void local_targets_kernel(LocalTargetsArgs args) {
  const int64_t i = token();
  if (i >= args.n) return;
  const int64_t target = args.targets[i] - args.first;
  const bool is_here = args.targets[i] >= 0 && target >= 0 && target < args.width;
  args.local[i] = is_here ? static_cast<int32_t>(target) : -1;
}

}  // namespace

void store_leaf_stats(const Context& context, const LeafStatsArgs& args) {
  launch(context, "store_leaf_stats", leaf_stats_kernel, ceil_div(args.n, kThreads), kThreads, 0,
         args);
}

void store_target_logit(const Context& context, const TargetLogitArgs& args) {
  with_type(args.dtype, [&](auto value) {
    launch(context, "store_target_logit", target_logit_kernel<decltype(value)>,
           ceil_div(args.n, kThreads), kThreads, 0, args);
  });
}

void join_leaves(const Context& context, const JoinLeavesArgs& args) {
  if ((args.stats_per_token - 1) / 2 * args.num_ranks >= 1 << (kLevels - 1))
    refuse("too many leaves");
  launch(context, "join_leaves", join_leaves_kernel, ceil_div(args.n, kThreads), kThreads, 0, args);
}

void local_targets(const Context& context, const LocalTargetsArgs& args) {
  launch(context, "local_targets", local_targets_kernel, ceil_div(args.n, kThreads), kThreads, 0,
         args);
}

}  // namespace weft::cuda
