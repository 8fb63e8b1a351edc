// tests/kernel/math_test.cpp: our exp, log and erf against libm in float64, and rounding to bf16.
#include <bit>
#include <limits>

#include "tests/kernel/common.h"

namespace weft {
namespace {

constexpr uint32_t kStride = 1009;  // a prime: 4 million of the 4 billion floats

std::vector<float> sample_floats() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += kStride) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return x;
}

// |got - want| in units in the last place of want as a float.
double ulps(float got, double want) {
  const float nearest = static_cast<float>(want);
  if (got == nearest || (std::isnan(got) && std::isnan(want))) return 0.0;
  const int exponent = std::max(std::ilogb(want), -126);
  return std::abs(got - want) / std::ldexp(1.0, exponent - 23);
}

TEST(Math, ExpIsAccurate) {
  const std::vector<float> x = sample_floats();
  std::vector<float> y(x.size());
  for (const char* name : available_levels()) {
    level_math(name).exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const bool tiny = want < std::numeric_limits<float>::min();  // becomes zero
      const double error = tiny ? (y[i] == 0.0f ? 0.0 : 1e9) : ulps(y[i], want);
      if (error > kExpUlp) ADD_FAILURE() << name << " exp(" << x[i] << ") = " << y[i];
      worst = std::max(worst, error);
    }
    std::printf("  exp of %s: at most %.3f ulp\n", name, worst);
  }
}

TEST(Math, LogIsAccurate) {
  const std::vector<float> x = sample_floats();
  std::vector<float> y(x.size());
  for (const char* name : available_levels()) {
    level_math(name).log(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0.0f && std::abs(x[i]) < std::numeric_limits<float>::min()) continue;
      const double error = ulps(y[i], std::log(static_cast<double>(x[i])));
      if (error > kLogUlp) ADD_FAILURE() << name << " log(" << x[i] << ") = " << y[i];
      worst = std::max(worst, error);
    }
    std::printf("  log of %s: at most %.3f ulp\n", name, worst);
  }
}

TEST(Math, ErfIsAccurate) {
  const std::vector<float> x = sample_floats();
  std::vector<float> y(x.size());
  for (const char* name : available_levels()) {
    level_math(name).erf(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), std::isnan(x[i])) << name << " erf(" << x[i] << ")";
      const double error = ulps(y[i], std::erf(static_cast<double>(x[i])));
      if (error > kErfUlp) ADD_FAILURE() << name << " erf(" << x[i] << ") = " << y[i];
      worst = std::max(worst, error);
    }
    std::printf("  erf of %s: at most %.3f ulp\n", name, worst);
  }
}

// A step of AdamW that changes nothing rounds the master to bf16: every level as to_bf16 does,
// subnormal numbers, infinities and NaN included.
TEST(Math, RoundingToBf16HasTheBitsOfToBf16) {
  const std::vector<float> sample = sample_floats();
  TestVector<float> master(sample.begin(), sample.end());
  const int64_t n = static_cast<int64_t>(master.size());
  TestVector<float> nothing(master.size(), 0.0f), m = nothing, v = nothing;
  TestVector<Bf16> p(master.size());
  Bench bench(1);
  for (const Kernels* kernels : tested_kernels()) {
    kernels->adamw(bench.context(0), {.n = n,
                                      .dtype = Dtype::kBf16,
                                      .grad_dtype = Dtype::kF32,
                                      .state_dtype = Dtype::kF32,
                                      .p = p.data(),
                                      .master = master.data(),
                                      .grad = nothing.data(),
                                      .m = m.data(),
                                      .v = v.data(),
                                      .grad_scale = 1.0f,
                                      .scalars = {.lr = 0.0f,
                                                  .beta1 = 0.9f,
                                                  .beta2 = 0.99f,
                                                  .eps = 1e-8f,
                                                  .weight_decay = 0.0f,
                                                  .bias1 = 1.0f,
                                                  .bias2 = 1.0f}});
    int64_t wrong = 0;
    for (size_t i = 0; i < master.size(); ++i) wrong += p[i].bits != to_bf16(master[i]).bits;
    EXPECT_EQ(wrong, 0) << kernels->name;
  }
}

}  // namespace
}  // namespace weft
