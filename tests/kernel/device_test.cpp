// tests/kernel/device_test.cpp: GPU operations for what the host computes by itself on the CPU.
#include <fmt/core.h>

#include <limits>

#include "base/exact_sum.h"
#include "kernel/device_kernels.h"
#include "tests/kernel/each_device.h"

namespace weft {
namespace {

using Limbs = TestVector<int64_t>;

Limbs limbs_of(ExactSum sum) {
  sum.normalize();
  return {sum.limbs(), sum.limbs() + ExactSum::kLimbs};
}

// Numbers of every size and both signs, as far apart as the type allows.
TestVector<double> wild_numbers(int64_t n, int most_exponent) {
  TestVector<double> x;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const double exponent = normal_at(5, 1, at) * most_exponent / 4.0;
    x.push_back(std::ldexp(normal_at(5, 2, at), static_cast<int>(exponent)));
  }
  return x;
}

TEST(DeviceExactSum, HasTheLimbsOfTheHost) {
  for (const int64_t n : {1, 100, 5000}) {
    const TestVector<double> wide = wild_numbers(n, 900);
    const TestVector<double> near = wild_numbers(n, 120);
    const TestVector<float> narrow(near.begin(), near.end());
    ExactSum first, both;
    for (const double v : wide) first.add(v);
    both = first;
    both.normalize();
    for (const float v : narrow) both.add(static_cast<double>(v));
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      Limbs limbs(ExactSum::kLimbs, 77);
      k.exact_sum(bench.context(0), {n, Dtype::kF64, wide.data(), limbs.data(), true});
      EXPECT_EQ(limbs, limbs_of(first)) << name;
      k.exact_sum(bench.context(0), {n, Dtype::kF32, narrow.data(), limbs.data(), false});
      EXPECT_EQ(limbs, limbs_of(both)) << name;
    });
  }
}

TEST(DeviceExactSum, CountsNonFiniteAddends) {
  const float infinity = std::numeric_limits<float>::infinity();
  const TestVector<float> x = {1.0f, infinity, -infinity, std::nanf(""), 0.0f, -0.0f, 1e-45f};
  ExactSum want;
  for (const float v : x) want.add(static_cast<double>(v));
  each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
    Limbs limbs(ExactSum::kLimbs);
    k.exact_sum(bench.context(0), {7, Dtype::kF32, x.data(), limbs.data(), true});
    EXPECT_EQ(limbs, limbs_of(want)) << name;
    EXPECT_EQ(limbs.back(), 3) << name;
  });
}

TEST(DeviceNorm, HasTheBitsOfTheHost) {
  std::vector<std::vector<double>> sums = {
      {},
      {4.0},
      {1.0, 0x1p-60},
      {0x1p-1074},
      {0x1p1023, 0x1p1023, 0x1p1023},
      {std::numeric_limits<double>::infinity()},
      {3.0, 0x1.8p-52, 0x1p-200},  // a tie, and a bit far below that decides it
      {1e300, -1e300, 1.5e-9},
  };
  for (int i = 0; i < 50; ++i) {
    const TestVector<double> some = wild_numbers(1 + i, 600);
    sums.emplace_back();
    for (const double v : some) sums.back().push_back(std::abs(v));
  }
  TestVector<UpdateScalars> scalars(1);
  for (const std::vector<double>& addends : sums) {
    ExactSum sum;
    for (const double v : addends) sum.add(v);
    const Limbs limbs = limbs_of(sum);
    for (const double clip_norm : {0.0, 1.0}) {
      scalars[0].target_tokens = 3.0;
      scalars[0].clip_norm = clip_norm;
      const double per_token = 1.0 / 3.0, want = std::sqrt(sum.value()) * per_token;
      const double clip = clip_norm > 0 ? std::min(1.0, clip_norm / (want + 1e-6)) : 1.0;
      each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
        TestVector<double> norm(1);
        TestVector<float> scale(1);
        k.norm(bench.context(0), {limbs.data(), scalars.data(), norm.data(), scale.data()});
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(norm[0])) << name;
        } else {
          EXPECT_EQ(norm[0], want) << name;
        }
        EXPECT_EQ(scale[0], static_cast<float>(clip * per_token)) << name;
      });
    }
  }
}

// fp16: the factor is divided out; a non-finite sum leaves a NaN and half the scale.
TEST(DeviceNorm, KeepsTheLossScale) {
  TestVector<UpdateScalars> scalars(1);
  scalars[0].target_tokens = 3.0;
  scalars[0].clip_norm = 0.25;
  for (const double square : {48.0, std::numeric_limits<double>::infinity()}) {
    ExactSum sum;
    sum.add(square);
    const Limbs limbs = limbs_of(sum);
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      TestVector<double> norm(1);
      TestVector<float> scale(1);
      TestVector<LossScale> loss_scale = {
          {.factor = 4, .scale = 512, .good_steps = 9, .skipped = 2}};
      k.norm(bench.context(0),
             {limbs.data(), scalars.data(), norm.data(), scale.data(), loss_scale.data()});
      const bool overflowed = std::isinf(square);
      EXPECT_EQ(loss_scale[0].factor, overflowed ? 2.0f : 4.0f) << name;
      EXPECT_EQ(loss_scale[0].scale, overflowed ? 256.0f : 512.0f) << name;
      EXPECT_EQ(loss_scale[0].good_steps, overflowed ? 0 : 10) << name;
      EXPECT_EQ(loss_scale[0].skipped, overflowed ? 3 : 2) << name;
      if (overflowed) {
        EXPECT_TRUE(std::isnan(norm[0]) && std::isnan(scale[0])) << name;
        return;
      }
      const double want = std::sqrt(48.0) * (1.0 / 3.0 / 4);
      EXPECT_EQ(norm[0], want) << name;
      EXPECT_EQ(scale[0], static_cast<float>(0.25 / (want + 1e-6) * (1.0 / 3.0 / 4))) << name;
    });
  }
}

TEST(DeviceSquares, AListHasTheBitsOfSingleCalls) {
  for (const Dtype dtype : gradient_types(Dtype::kF32)) {
    std::vector<Buffer> x;
    for (const int64_t n : {1, 256, 8192, 20001}) x.push_back(Buffer::random(dtype, n, 1));
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      std::vector<TestVector<double>> got, want;
      std::vector<SquaresItem> items;
      for (const Buffer& of : x) {
        const auto cells = static_cast<size_t>((of.size() + 255) / 256);
        got.emplace_back(cells, -1.0);
        want.emplace_back(cells, -2.0);
        items.push_back({of.size(), of.data(), got.back().data()});
        kernels_named(name).squares(bench.context(0),
                                    {of.size(), dtype, of.data(), want.back().data()});
      }
      const auto count = static_cast<int64_t>(items.size());
      TestVector<std::byte> table(k.squares_table_bytes(items.data(), count));
      const int64_t blocks = k.squares_table(items.data(), count, table.data());
      k.squares_list(bench.context(0), {dtype, table.data(), blocks});
      EXPECT_EQ(got, want) << name;
    });
  }
}

TEST(DeviceStoreSum, RoundsOrAdds) {
  for (const int64_t n : {1, 999, 4096}) {
    const Buffer sum = Buffer::random(Dtype::kF32, n, 1);
    for (const Dtype dtype : gradient_types(Dtype::kF32)) {
      const Buffer old = Buffer::random(dtype, n, 2);
      for (const bool accumulate : {false, true}) {
        Buffer want = old;
        for (int64_t i = 0; i < n; ++i) {
          want.set(i,
                   static_cast<float>(sum[i]) + (accumulate ? static_cast<float>(old[i]) : 0.0f));
        }
        each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
          Buffer out = old;
          k.store_sum(bench.context(0), {n, sum.floats(), out.data(), dtype, accumulate});
          EXPECT_TRUE(out.same_bits(want)) << name << " n " << n;
        });
      }
    }
  }
}

// In place too: a narrower result overwrites sums that must be read first.
TEST(DeviceRoundSum, AddsABiasAndRounds) {
  struct Extents {
    int64_t rows, columns;
  };
  for (const Extents& e : {Extents{1, 1}, {7, 33}, {50, 104}}) {
    const int64_t n = e.rows * e.columns;
    for (const Dtype sum_dtype : kAllTypes) {
      for (const Dtype dtype : kAllTypes) {
        if (sum_dtype != Dtype::kF32 && sum_dtype != dtype) continue;
        const Buffer sum = Buffer::random(sum_dtype, n, 1),
                     bias = Buffer::random(dtype, e.columns, 2);
        for (const bool has_bias : {false, true}) {
          Buffer want(dtype, n);
          for (int64_t i = 0; i < n; ++i) {
            const auto s = static_cast<float>(sum[i]), b = static_cast<float>(bias[i % e.columns]);
            want.set(i, has_bias ? s + b : s);
          }
          each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
            Buffer out(dtype, n), same = sum;
            RoundSumArgs args = {.rows = e.rows,
                                 .columns = e.columns,
                                 .sum_dtype = sum_dtype,
                                 .dtype = dtype,
                                 .sum = sum.data(),
                                 .bias = has_bias ? bias.data() : nullptr,
                                 .out = out.data()};
            k.round_sum(bench.context(0), args);
            EXPECT_TRUE(out.same_bits(want)) << name;
            if (dtype_bytes(dtype) > dtype_bytes(sum_dtype)) return;
            args.sum = args.out = same.data();
            k.round_sum(bench.context(0), args);
            EXPECT_EQ(
                std::memcmp(same.data(), want.data(), static_cast<size_t>(n * dtype_bytes(dtype))),
                0)
                << name << " in place";
          });
        }
      }
    }
  }
}

TEST(DeviceTakeRows, TakesTheLastOfEachRow) {
  const int64_t B = 11, T = 5;
  TestVector<int32_t> last;
  for (int32_t b = 0; b < B; ++b) last.push_back(b * 3 % 5);
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t C : {7, 64, 904}) {
      const Buffer x = Buffer::random(dtype, B * T * C, 1);
      Buffer want(dtype, B * C);
      for (int64_t i = 0; i < B * C; ++i) {
        want.set(i, x[(i / C * T + last[static_cast<size_t>(i / C)]) * C + i % C]);
      }
      each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
        Buffer out(dtype, B * C);
        k.take_rows(bench.context(0), {B, T, C, dtype, x.data(), last.data(), out.data()});
        EXPECT_TRUE(out.same_bits(want)) << name;
      });
    }
  }
}

}  // namespace
}  // namespace weft
