// tests/kernel/scale_test.cpp: a tensor times a constant.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

Buffer scaled(const Buffer& x, float factor, bool in_place, const Kernels& kernels, Bench& bench) {
  Buffer y = in_place ? x : Buffer(x.dtype(), x.size());
  const ScaleArgs args{.n = x.size(),
                       .dtype = x.dtype(),
                       .factor = factor,
                       .x = in_place ? y.data() : x.data(),
                       .y = y.data()};
  kernels.scale(bench.context(0), args);
  return y;
}

// One product, one rounding: the same bits everywhere.
TEST(Scale, EveryLevelHasRefsBits) {
  Bench one(1), two(2), three(3);
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t n : {1, 7, 255, 4096, 40003}) {
      const Buffer x = Buffer::random(dtype, n, 1);
      for (const float factor : {0.044194174f, -3.0f, 0.0f, 1.0f}) {
        const Buffer want = scaled(x, factor, false, ref_kernels(), one);
        for (const Kernels* k : tested_kernels(dtype)) {
          const std::string what =
              fmt::format("{} n {} {} factor {}", k->name, n, dtype_name(dtype), factor);
          EXPECT_TRUE(scaled(x, factor, false, *k, one).same_bits(want)) << what;
          EXPECT_TRUE(scaled(x, factor, true, *k, two).same_bits(want)) << what << " in place";
          EXPECT_TRUE(scaled(x, factor, false, *k, three).same_bits(want)) << what;
        }
      }
    }
  }
}

TEST(Scale, RefIsTheProduct) {
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    const Buffer x = Buffer::random(dtype, 100, 1);
    const Buffer y = scaled(x, 0.3f, false, ref_kernels(), bench);
    for (int64_t i = 0; i < x.size(); ++i) {
      float want;  // wide enough for all of them
      store_element(&want, dtype, 0, static_cast<float>(x[i]) * 0.3f);
      EXPECT_EQ(y[i], load_element(&want, dtype, 0)) << i;
    }
  }
}

TEST(Scale, GradientOfRefIsTheDifference) {
  Buffer x = Buffer::random(Dtype::kF32, 9, 1);
  const Buffer dy = Buffer::random(Dtype::kF32, 9, 2);
  Bench bench(1);
  const auto loss = [&] {
    const Buffer y = scaled(x, -1.7f, false, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  expect_differences(x, loss, scaled(dy, -1.7f, false, ref_kernels(), bench), "dx");
}

}  // namespace
}  // namespace weft
