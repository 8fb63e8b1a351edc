// kernel/cpu/head_kernels.cpp: the CPU's: small against the products, so they run on one thread.
#include "kernel/head_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace weft {
namespace {

void take_rows(const Context&, const TakeRowsArgs& a) {
  const int64_t bytes = a.C * dtype_bytes(a.dtype);
  for (int64_t i = 0; i < a.B; ++i) {
    std::memcpy(static_cast<std::byte*>(a.out) + i * bytes,
                static_cast<const std::byte*>(a.x) + (i * a.T + a.last[i]) * bytes,
                static_cast<size_t>(bytes));
  }
}

void store_leaf_stats(const Context&, const LeafStatsArgs& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    double* to = a.leaves + i * a.stats_per_token + 2 * a.leaf;
    to[0] = static_cast<double>(a.highest[i]);
    to[1] = a.sum[i];
  }
}

void store_target_logit(const Context&, const TargetLogitArgs& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    const int64_t target = a.targets[i] - a.first_id;
    const bool is_here = a.targets[i] >= 0 && target >= 0 && target < a.V;
    a.leaves[(i + 1) * a.stats_per_token - 1] =
        is_here ? static_cast<double>(load_element(a.logits, a.dtype, i * a.V + target)) : 0.0;
  }
}

void join_leaves(const Context&, const JoinLeavesArgs& a) {
  constexpr int kMostLeaves = 256;
  const int per_rank = static_cast<int>((a.stats_per_token - 1) / 2);
  const int count = per_rank * a.num_ranks;
  if (count > kMostLeaves) throw BugError("the vocabulary has more pieces than the head supports");
  for (int64_t i = 0; i < a.n; ++i) {
    const auto rank_leaves = [&](int rank) {
      return a.leaves + (rank * a.n + i) * a.stats_per_token;
    };
    double tree[kMostLeaves];
    double most = -std::numeric_limits<double>::infinity(), target = 0;
    for (int rank = 0; rank < a.num_ranks; ++rank) {
      const double* leaves = rank_leaves(rank);
      for (int s = 0; s < per_rank; ++s) most = std::max(most, leaves[2 * s]);
      target += leaves[2 * per_rank];
    }
    for (int s = 0; s < count; ++s) {
      const double* leaf = rank_leaves(s / per_rank) + 2 * (s % per_rank);
      tree[s] = leaf[1] * std::exp(leaf[0] - most);
    }
    for (int width = 1; width < count; width *= 2) {
      for (int s = 0; s + width < count; s += 2 * width) tree[s] += tree[s + width];
    }
    const bool counts = a.targets[i] >= 0;
    a.losses[i] = counts ? static_cast<float>(std::log(tree[0]) + (most - target)) : 0.0f;
    a.highest[i] = static_cast<float>(most);
    a.scale[i] = counts ? static_cast<float>(1.0 / tree[0]) : 0.0f;
  }
}

void local_targets(const Context&, const LocalTargetsArgs& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    const int64_t target = a.targets[i] - a.first;
    const bool is_here = a.targets[i] >= 0 && target >= 0 && target < a.width;
    a.local[i] = is_here ? static_cast<int32_t>(target) : -1;
  }
}

}  // namespace

HeadKernels head_kernels(const Kernels& kernels) {
  if (const DeviceKernels* d = kernels.device) {
    return {d->take_rows, d->store_leaf_stats, d->store_target_logit, d->join_leaves,
            d->local_targets};
  }
  return {take_rows, store_leaf_stats, store_target_logit, join_leaves, local_targets};
}

}  // namespace weft
