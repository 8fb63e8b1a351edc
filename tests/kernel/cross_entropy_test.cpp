// tests/kernel/cross_entropy_test.cpp: losses of rows of logits, and the softmax in two halves.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

Outputs cross_entropy(int64_t V, Dtype dtype, const Buffer& logits,
                      const TestVector<int32_t>& targets, bool with_gradient,
                      const Kernels& kernels, Bench& bench) {
  const int64_t R = static_cast<int64_t>(targets.size());
  Buffer gradient = logits, losses(Dtype::kF32, R);
  kernels.cross_entropy(bench.context(0), {.R = R,
                                           .V = V,
                                           .dtype = dtype,
                                           .logits = gradient.data(),
                                           .targets = targets.data(),
                                           .losses = losses.floats(),
                                           .with_gradient = with_gradient});
  return {losses, gradient};
}

TEST(CrossEntropy, EveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    // The longest has more slices than a GPU keeps of it, as emulated.
    for (const int64_t V : {1, 7, 2048, 5001, 70000}) {
      const int32_t last = static_cast<int32_t>(V - 1);
      const TestVector<int32_t> targets = {0, last, -100, last / 2, -1};
      Buffer logits = Buffer::random(dtype, 5 * V, 1, 5.0);
      for (int64_t i = 0; i < V; ++i) logits.set(i, logits[i] + 1000.0);  // row 0 far from zero
      for (const bool with_gradient : {false, true}) {
        compare_levels(
            fmt::format("cross entropy V {} {}", V, dtype_name(dtype)), dtype,
            [&](const Kernels& k, Bench& b) {
              return cross_entropy(V, dtype, logits, targets, with_gradient, k, b);
            },
            [&](size_t output) { return tolerance_of(output == 0 ? Dtype::kF32 : dtype); });
      }
    }
  }
}

// Rows of several slices (cross_entropy_kept.cu): in shared memory, in registers, read again. The
// whole row in 16 bytes at a time or not, more rows than blocks, some without a target.
TEST(CrossEntropy, KeepingRowsDoesNotChangeBits) {
  constexpr int64_t kBytes[] = {0, 16 << 10, (32 << 10) + 5, INT64_MAX};
  const float factor = 8.0f;
  for (const Dtype dtype : kAllTypes) {
    const int64_t pack = 16 / dtype_bytes(dtype);
    for (const int64_t V : {pack, 2048 * pack, 8 * 1024 * pack - pack, 9 * 1024 * pack + 7 * pack,
                            13 * 1024 * pack + 1}) {
      const auto last = static_cast<int32_t>(V - 1);
      const TestVector<int32_t> targets = {-1, last, last / 2, 0, -1, -1, -100, last / 3};
      const auto R = static_cast<int64_t>(targets.size());
      const Buffer logits = Buffer::random(dtype, R * V, 1, 4.0);
      const TestVector<float> factors = {factor};
      Bench benches[] = {Bench(1), Bench(2), Bench(3)};
      for (const TestedDevice& device : tested_devices()) {
        int turn = 0;
        const auto run = [&](int blocks_per_sm, int64_t shared_bytes) {
          Outputs got = {Buffer(Dtype::kF32, R), logits};
          device.kernels->cross_entropy_kept(benches[turn++ % 3].context(0),
                                             {{.R = R,
                                               .V = V,
                                               .dtype = dtype,
                                               .logits = got[1].data(),
                                               .targets = targets.data(),
                                               .losses = got[0].floats(),
                                               .with_gradient = true,
                                               .factor = factors.data()},
                                              blocks_per_sm,
                                              shared_bytes});
          return got;
        };
        const Outputs want = run(0, 0);
        for (const int blocks_per_sm : {1, 2}) {
          for (const int64_t bytes : kBytes) {
            const Outputs got = run(blocks_per_sm, bytes);
            const std::string where = fmt::format("{} V {} {}, {} blocks of {} bytes", device.name,
                                                  V, dtype_name(dtype), blocks_per_sm, bytes);
            EXPECT_TRUE(got[0].same_bits(want[0])) << where << ": losses";
            EXPECT_TRUE(got[1].same_bits(want[1])) << where << ": gradient";
          }
        }
      }
    }
  }
}

// fp16's loss scale: a power of two that multiplies the gradient before the one rounding.
TEST(CrossEntropy, FactorMultipliesTheGradient) {
  const int64_t V = 301;
  const TestVector<int32_t> targets = {0, 300, -1, 150};
  Bench bench(1);
  const Buffer narrow = Buffer::random(Dtype::kF16, 4 * V, 1, 3.0);
  Buffer wide(Dtype::kF32, 4 * V);
  for (int64_t i = 0; i < 4 * V; ++i) wide.set(i, narrow[i]);
  const TestVector<float> factor = {512.0f}, ones(4, 1.0f);
  TestVector<const Kernels*> all = {&ref_kernels()};
  for (const Kernels* k : tested_kernels(Dtype::kF16)) all.push_back(k);
  for (const Kernels* k : all) {
    // The fp32 result, multiplied afterwards.
    Buffer plain = cross_entropy(V, Dtype::kF32, wide, targets, true, *k, bench)[1];
    for (int64_t i = 0; i < plain.size(); ++i) plain.set(i, plain[i] * 512.0);
    Buffer got = narrow, losses(Dtype::kF32, 4);
    k->cross_entropy(bench.context(0), {.R = 4,
                                        .V = V,
                                        .dtype = Dtype::kF16,
                                        .logits = got.data(),
                                        .targets = targets.data(),
                                        .losses = losses.floats(),
                                        .with_gradient = true,
                                        .factor = factor.data()});
    expect_close(got, plain, kHalfTolerance, std::string("cross entropy ") + k->name);
    // exp(logit) alone, times the factor.
    const TestVector<float> zeros(4, 0.0f);
    Buffer parts = narrow, whole(Dtype::kF32, 4 * V);
    for (int64_t i = 0; i < 4 * V; ++i) {
      const bool is_target = targets[static_cast<size_t>(i / V)] == i % V;
      whole.set(i, 512.0 * (std::exp(narrow[i]) - (is_target ? 1.0 : 0.0)));
    }
    k->softmax_gradient(bench.context(0), {.R = 4,
                                           .V = V,
                                           .ld = V,
                                           .dtype = Dtype::kF16,
                                           .logits = parts.data(),
                                           .targets = targets.data(),
                                           .highest = zeros.data(),
                                           .scale = ones.data(),
                                           .factor = factor.data()});
    for (int64_t i = 0; i < 4 * V; ++i) {
      if (std::abs(whole[i]) > 65600) {
        EXPECT_TRUE(std::isinf(parts[i])) << k->name;  // too large is infinite, not cut off
      } else if (std::abs(whole[i]) < 65400) {
        EXPECT_NEAR(parts[i], whole[i], 2e-3 * std::abs(whole[i]) + 1e-6) << k->name;
      }
    }
  }
}

TEST(CrossEntropy, GradientOfRefIsTheDifference) {
  const int64_t V = 6;
  const TestVector<int32_t> targets = {2, -1, 5};
  Buffer logits = Buffer::random(Dtype::kF32, 3 * V, 1);
  Bench bench(1);
  const auto loss = [&] {
    const Outputs result =
        cross_entropy(V, Dtype::kF32, logits, targets, false, ref_kernels(), bench);
    return result[0][0] + result[0][1] + result[0][2];
  };
  const Buffer gradient =
      cross_entropy(V, Dtype::kF32, logits, targets, true, ref_kernels(), bench)[1];
  expect_differences(logits, loss, gradient, "dlogits");
}

// Rows of `ld` logits, of which V columns from `first` on are one softmax.
struct Columns {
  int64_t R, V, ld, first;
};

struct Stats {
  Buffer highest;
  TestVector<double> sum;
};

Stats softmax_stats(const Columns& c, const Buffer& logits, const Kernels& kernels, Bench& bench) {
  Stats stats = {Buffer(Dtype::kF32, c.R), TestVector<double>(static_cast<size_t>(c.R))};
  kernels.softmax_stats(bench.context(0), {.R = c.R,
                                           .V = c.V,
                                           .ld = c.ld,
                                           .dtype = logits.dtype(),
                                           .logits = logits.at(c.first),
                                           .highest = stats.highest.floats(),
                                           .sum = stats.sum.data()});
  return stats;
}

TEST(Softmax, StatsOfEveryLevelAgreeWithRef) {
  Bench one(1), two(2);
  for (const Dtype dtype : kAllTypes) {
    for (const Columns& c : {Columns{3, 0, 5, 1},
                             {3, 1, 4, 0},
                             {2, 33, 41, 3},
                             {3, 4097, 4099, 2},
                             {2, 9000, 9001, 0}}) {
      Buffer logits = Buffer::random(dtype, c.R * c.ld, 1, 5.0);
      for (int64_t i = 0; i < c.ld; ++i) logits.set(i, logits[i] - 500.0);
      const Stats want = softmax_stats(c, logits, ref_kernels(), one);
      for (const Kernels* kernels : tested_kernels(dtype)) {
        const Stats got = softmax_stats(c, logits, *kernels, one);
        const std::string where = fmt::format("V {} {} {}", c.V, dtype_name(dtype), kernels->name);
        EXPECT_TRUE(got.highest.same_bits(want.highest)) << where;
        for (size_t r = 0; r < got.sum.size(); ++r) {
          EXPECT_NEAR(got.sum[r], want.sum[r], kFloatTolerance.relative * want.sum[r]) << where;
        }
        const Stats again = softmax_stats(c, logits, *kernels, two);
        EXPECT_TRUE(again.highest.same_bits(got.highest) && again.sum == got.sum) << where;
      }
    }
  }
}

// The layout decides where the leaves of a vocabulary are; their sums must not depend on it.
TEST(Softmax, StatsDoNotDependOnTheAddress) {
  const int64_t V = 5003;
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    const Buffer row = Buffer::random(dtype, V, 1, 3.0);
    for (const Kernels* kernels : tested_kernels(dtype)) {
      const Stats want = softmax_stats({1, V, V, 0}, row, *kernels, bench);
      for (int64_t first = 1; first < 8; ++first) {
        Buffer moved(dtype, V + 8);
        for (int64_t i = 0; i < V; ++i) moved.set(first + i, row[i]);
        const Stats got = softmax_stats({1, V, V, first}, moved, *kernels, bench);
        EXPECT_EQ(got.sum, want.sum) << kernels->name << " from " << first;
      }
    }
  }
}

TEST(Softmax, GradientOfEveryLevelAgreesWithRef) {
  for (const Dtype dtype : kAllTypes) {
    for (const Columns& c :
         {Columns{3, 1, 4, 0}, {3, 33, 41, 3}, {3, 4097, 4099, 2}, {3, 9000, 9000, 0}}) {
      const Buffer logits = Buffer::random(dtype, c.R * c.ld, 1, 3.0);
      TestVector<int32_t> targets = {0, -1, static_cast<int32_t>(c.V - 1)};
      Buffer highest = Buffer::filled(Dtype::kF32, c.R, 9.0);
      Buffer scale = Buffer::filled(Dtype::kF32, c.R, 0.01);
      scale.set(1, 0.0);  // a token without a target
      compare_levels(
          fmt::format("softmax gradient V {} {}", c.V, dtype_name(dtype)), dtype,
          [&](const Kernels& kernels, Bench& bench) {
            Buffer gradient = logits;  // the rest of the row stays
            kernels.softmax_gradient(bench.context(0), {.R = c.R,
                                                        .V = c.V,
                                                        .ld = c.ld,
                                                        .dtype = dtype,
                                                        .logits = gradient.at(c.first),
                                                        .targets = targets.data(),
                                                        .highest = highest.floats(),
                                                        .scale = scale.floats()});
            return Outputs{gradient};
          },
          tolerance_of(dtype));
    }
  }
}

}  // namespace
}  // namespace weft
