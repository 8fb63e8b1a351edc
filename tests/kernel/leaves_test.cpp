// tests/kernel/leaves_test.cpp: a softmax in leaves on several ranks gives the loss of the whole.
#include <fmt/core.h>

#include "kernel/device_kernels.h"
#include "tests/kernel/common.h"

namespace weft {
namespace {

// Logits of n tokens over `ranks` ranks with `leaves` leaves of `width` columns each.
struct Split {
  int64_t n;
  int ranks, leaves;
  int64_t width;
  Dtype dtype;

  int64_t stats_per_token() const { return 2 * leaves + 1; }
  int64_t columns() const { return leaves * width; }  // of a rank
  int64_t all() const { return ranks * columns(); }
  std::string text() const {
    return fmt::format("{} ranks, {} leaves of {}, {}", ranks, leaves, width, dtype_name(dtype));
  }
};

Buffer rank_logits(const Split& s, const Buffer& logits, int rank) {
  Buffer part(s.dtype, s.n * s.columns());
  for (int64_t i = 0; i < part.size(); ++i) {
    part.set(i, logits[i / s.columns() * s.all() + rank * s.columns() + i % s.columns()]);
  }
  return part;
}

struct Joined {
  Buffer losses, highest, scale;
};

// Each rank's statistics of its leaves, concatenated, then joined.
Joined join(const Split& s, const Buffer& logits, const TestVector<int32_t>& targets,
            const DeviceKernels& k, Bench& bench) {
  TestVector<double> leaves(static_cast<size_t>(s.ranks * s.n * s.stats_per_token()), 1e300);
  for (int rank = 0; rank < s.ranks; ++rank) {
    const Buffer part = rank_logits(s, logits, rank);
    double* stats_per_token = leaves.data() + rank * s.n * s.stats_per_token();
    for (int leaf = 0; leaf < s.leaves; ++leaf) {
      Buffer highest(Dtype::kF32, s.n);
      TestVector<double> sum(static_cast<size_t>(s.n));
      ref_kernels().softmax_stats(bench.context(0),
                                  {s.n, s.width, s.columns(), s.dtype, part.at(leaf * s.width),
                                   highest.floats(), sum.data()});
      k.store_leaf_stats(bench.context(0), {s.n, s.stats_per_token(), leaf, highest.floats(),
                                            sum.data(), stats_per_token});
    }
    k.store_target_logit(bench.context(0), {.n = s.n,
                                            .stats_per_token = s.stats_per_token(),
                                            .V = s.columns(),
                                            .dtype = s.dtype,
                                            .logits = part.data(),
                                            .targets = targets.data(),
                                            .first_id = rank * s.columns(),
                                            .leaves = stats_per_token});
  }
  Joined joined = {Buffer(Dtype::kF32, s.n), Buffer(Dtype::kF32, s.n), Buffer(Dtype::kF32, s.n)};
  k.join_leaves(bench.context(0), {.n = s.n,
                                   .stats_per_token = s.stats_per_token(),
                                   .num_ranks = s.ranks,
                                   .leaves = leaves.data(),
                                   .targets = targets.data(),
                                   .losses = joined.losses.floats(),
                                   .highest = joined.highest.floats(),
                                   .scale = joined.scale.floats()});
  return joined;
}

TEST(DeviceLeaves, LossAndGradientEqualTheWhole) {
  for (const Split& s : {Split{9, 1, 1, 7, Dtype::kF32},
                         {9, 2, 3, 5, Dtype::kF32},
                         {200, 3, 1, 4, Dtype::kBf16},
                         {90, 2, 2, 9, Dtype::kF16},
                         {5, 1, 7, 11, Dtype::kBf16}}) {
    const Buffer logits = Buffer::random(s.dtype, s.n * s.all(), 1, 4.0);
    TestVector<int32_t> targets;
    for (int64_t i = 0; i < s.n; ++i) {
      targets.push_back(i % 4 == 3 ? -1 : static_cast<int32_t>(i * 5 % s.all()));
    }
    Bench plain(1);
    Buffer want = logits, losses(Dtype::kF32, s.n);
    ref_kernels().cross_entropy(plain.context(0), {s.n, s.all(), s.dtype, want.data(),
                                                   targets.data(), losses.floats(), true});
    for (const TestedDevice& device : tested_devices()) {
      Bench bench(2);
      const DeviceKernels& k = *device.kernels;
      const Joined joined = join(s, logits, targets, k, bench);
      expect_close(joined.losses, losses, kFloatTolerance, s.text() + " losses");
      for (int rank = 0; rank < s.ranks; ++rank) {
        Buffer part = rank_logits(s, logits, rank);
        for (int leaf = 0; leaf < s.leaves; ++leaf) {
          TestVector<int32_t> local(targets.size(), 99);
          k.local_targets(bench.context(0), {.n = s.n,
                                             .first = rank * s.columns() + leaf * s.width,
                                             .width = s.width,
                                             .targets = targets.data(),
                                             .local = local.data()});
          ref_kernels().softmax_gradient(
              bench.context(0), {s.n, s.width, s.columns(), s.dtype, part.at(leaf * s.width),
                                 local.data(), joined.highest.floats(), joined.scale.floats()});
        }
        expect_close(part, rank_logits(s, want, rank), tolerance_of(s.dtype),
                     s.text() + " gradient");
      }
    }
  }
}

// However many ranks hold the leaves, the tree over them is one: the same bits.
TEST(DeviceLeaves, RanksDoNotChangeTheTree) {
  const int64_t n = 40;
  for (const int leaves : {2, 6, 7, 12}) {
    const Buffer logits = Buffer::random(Dtype::kF32, n * leaves * 3, 1, 4.0);
    TestVector<int32_t> targets(n, 2);
    for (const TestedDevice& device : tested_devices()) {
      Bench bench(3);
      const Split one = {n, 1, leaves, 3, Dtype::kF32};
      const Joined want = join(one, logits, targets, *device.kernels, bench);
      for (int ranks = 2; ranks <= leaves; ++ranks) {
        if (leaves % ranks != 0) continue;
        const Split split = {n, ranks, leaves / ranks, 3, Dtype::kF32};
        const Joined got = join(split, logits, targets, *device.kernels, bench);
        EXPECT_TRUE(got.losses.same_bits(want.losses)) << split.text();
        EXPECT_TRUE(got.scale.same_bits(want.scale)) << split.text();
      }
    }
  }
}

}  // namespace
}  // namespace weft
