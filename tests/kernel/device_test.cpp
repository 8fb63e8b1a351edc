// tests/kernel/device_test.cpp: GPU operations for what the host computes by itself on the CPU.
#include <fmt/core.h>

#include <limits>

#include "base/exact_sum.h"
#include "kernel/device_kernels.h"
#include "tests/kernel/common.h"

namespace weft {
namespace {

// fn(kernels, bench, name) on every device, with the threads in every order.
template <typename Fn>
void each_device(const Fn& fn) {
  for (const TestedDevice& device : tested_devices()) {
    for (const int order : {1, 2, 3}) {
      Bench bench(order);
      fn(*device.kernels, bench, fmt::format("{}, order {}", device.name, order));
    }
  }
}

const Kernels& kernels_named(const std::string& name) {
  for (const Kernels* kernels : tested_kernels()) {
    if (name.starts_with(std::string(kernels->name) + ",")) return *kernels;
  }
  throw std::runtime_error("no kernels of " + name);
}

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

struct ListCase {
  Dtype dtype, grad_dtype, state_dtype;
  bool master;
};

struct Parameter {
  Buffer p, master, grad, m, v;
  Parameter(const ListCase& c, int64_t n, uint64_t stream)
      : p(Buffer::random(c.dtype, n, stream)),
        master(Buffer::random(Dtype::kF32, n, stream)),
        grad(Buffer::random(c.grad_dtype, n, stream + 1)),
        m(Buffer::random(c.state_dtype, n, stream + 2, 0.1)),
        v(Buffer::random(c.state_dtype, n, stream + 3, 0.1)) {
    for (int64_t i = 0; i < n; ++i) v.set(i, v[i] * v[i]);
  }
};

// The list has the bits of single calls of the same backend, which other tests compare with ref.
TEST(DeviceAdamw, AListHasTheBitsOfSingleCalls) {
  const Dtype f = Dtype::kF32, b = Dtype::kBf16;
  const int64_t sizes[] = {1, 333, 16384, 18000, 8};
  TestVector<UpdateScalars> scalars = {{.target_tokens = 1,
                                        .clip_norm = 0,
                                        .lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .bias1 = 1.0 - std::pow(0.9, 3.0),
                                        .bias2 = 1.0 - std::pow(0.95, 3.0)}};
  const TestVector<float> scale = {0.25f};
  for (const ListCase& c : {ListCase{f, f, f, false},
                            {b, b, b, false},
                            {b, f, f, true},
                            {b, b, b, true},
                            {Dtype::kF16, f, f, true}}) {
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      std::vector<Parameter> got, want;
      std::vector<AdamwItem> items;
      for (const int64_t n : sizes) got.emplace_back(c, n, static_cast<uint64_t>(n));
      want = got;
      for (Parameter& p : got) {
        items.push_back({p.p.size(), p.p.data(), c.master ? p.master.floats() : nullptr,
                         p.grad.data(), p.m.data(), p.v.data(), items.size() % 2 == 0});
      }
      const auto count = static_cast<int64_t>(items.size());
      TestVector<std::byte> table(k.adamw_table_bytes(items.data(), count));
      const int64_t blocks = k.adamw_table(items.data(), count, table.data());
      k.adamw_list(bench.context(0), {.dtype = c.dtype,
                                      .grad_dtype = c.grad_dtype,
                                      .state_dtype = c.state_dtype,
                                      .table = table.data(),
                                      .num_blocks = blocks,
                                      .scalars = scalars.data(),
                                      .scale = scale.data()});
      for (size_t i = 0; i < want.size(); ++i) {
        const UpdateScalars& s = scalars[0];
        kernels_named(name).adamw(bench.context(0),
                                  {.n = want[i].p.size(),
                                   .dtype = c.dtype,
                                   .grad_dtype = c.grad_dtype,
                                   .state_dtype = c.state_dtype,
                                   .p = want[i].p.data(),
                                   .master = c.master ? want[i].master.floats() : nullptr,
                                   .grad = want[i].grad.data(),
                                   .m = want[i].m.data(),
                                   .v = want[i].v.data(),
                                   .grad_scale = 0.25,
                                   .lr = s.lr,
                                   .beta1 = s.beta1,
                                   .beta2 = s.beta2,
                                   .eps = s.eps,
                                   .weight_decay = i % 2 == 0 ? s.weight_decay : 0.0,
                                   .bias1 = s.bias1,
                                   .bias2 = s.bias2});
        const std::string where = fmt::format("{}, parameter {}", name, i);
        EXPECT_TRUE(got[i].p.same_bits(want[i].p)) << where;
        EXPECT_TRUE(got[i].master.same_bits(want[i].master)) << where;
        EXPECT_TRUE(got[i].m.same_bits(want[i].m)) << where;
        EXPECT_TRUE(got[i].v.same_bits(want[i].v)) << where;
      }
    });
  }
}

TEST(DeviceAdamw, ANanScaleChangesNothing) {
  const ListCase c{Dtype::kF16, Dtype::kF32, Dtype::kF32, true};
  TestVector<UpdateScalars> scalars = {{.target_tokens = 1,
                                        .clip_norm = 0,
                                        .lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .bias1 = 0.1,
                                        .bias2 = 0.05}};
  for (const bool is_number : {false, true}) {
    const TestVector<float> scale = {is_number ? 1.0f : std::numeric_limits<float>::quiet_NaN()};
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      const Parameter before(c, 500, 1);
      Parameter p = before;
      const AdamwItem item = {500,        p.p.data(), p.master.floats(), p.grad.data(), p.m.data(),
                              p.v.data(), true};
      TestVector<std::byte> table(k.adamw_table_bytes(&item, 1));
      const int64_t blocks = k.adamw_table(&item, 1, table.data());
      k.adamw_list(bench.context(0), {c.dtype, c.grad_dtype, c.state_dtype, table.data(), blocks,
                                      scalars.data(), scale.data()});
      for (const auto part : {&Parameter::p, &Parameter::master, &Parameter::m, &Parameter::v})
        EXPECT_EQ((p.*part).same_bits(before.*part), !is_number) << name;
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
