// tests/kernel/attention_test.cpp: causal attention, its gradient and the cached form.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

struct Case {
  int64_t B, T, H, G, D;
  std::vector<int32_t> lengths;
  Dtype dtype = Dtype::kF32;

  int64_t width() const { return (H + 2 * G) * D; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(D)); }
  std::string text() const {
    return fmt::format("B {} T {} H {} G {} D {} {}", B, T, H, G, D, dtype_name(dtype));
  }
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Dtype dtype : kBothTypes) {
    list.push_back({1, 1, 1, 1, 8, {1}, dtype});
    list.push_back({2, 5, 2, 1, 2, {5, 3}, dtype});
    list.push_back({2, 64, 2, 2, 16, {64, 63}, dtype});
    list.push_back({3, 65, 4, 2, 10, {65, 0, 1}, dtype});
    list.push_back({2, 130, 3, 1, 64, {130, 77}, dtype});
    list.push_back({1, 200, 1, 1, 18, {197}, dtype});
    list.push_back({1, 70, 2, 1, 80, {70}, dtype});
    list.push_back({1, 40, 1, 1, 128, {33}, dtype});
    list.push_back({1, 20, 1, 1, 256, {20}, dtype});
  }
  return list;
}

AttentionArgs forward_args(const Case& c, const Buffer& qkv, Buffer& out, Buffer& lse) {
  return {.B = c.B,
          .T = c.T,
          .H = c.H,
          .G = c.G,
          .D = c.D,
          .dtype = c.dtype,
          .scale = c.scale(),
          .qkv = qkv.data(),
          .lengths = c.lengths.data(),
          .out = out.data(),
          .lse = lse.floats()};
}

Outputs forward(const Case& c, const Buffer& qkv, const Kernels& kernels, Bench& bench) {
  Buffer out(c.dtype, c.B * c.T * c.H * c.D);
  Buffer lse(Dtype::kF32, c.B * c.H * c.T);
  const AttentionArgs args = forward_args(c, qkv, out, lse);
  kernels.attention(bench.context(kernels.attention_workspace(args, bench.num_threads())), args);
  return {out, lse};
}

Buffer backward(const Case& c, const Buffer& qkv, const Outputs& forward_result, const Buffer& dout,
                const Kernels& kernels, Bench& bench) {
  Buffer dqkv(c.dtype, c.B * c.T * c.width());
  const AttentionBackwardArgs args = {.B = c.B,
                                      .T = c.T,
                                      .H = c.H,
                                      .G = c.G,
                                      .D = c.D,
                                      .dtype = c.dtype,
                                      .scale = c.scale(),
                                      .qkv = qkv.data(),
                                      .lengths = c.lengths.data(),
                                      .out = forward_result[0].data(),
                                      .dout = dout.data(),
                                      .lse = forward_result[1].floats(),
                                      .dqkv = dqkv.data()};
  const size_t bytes = kernels.attention_backward_workspace(args, bench.num_threads());
  kernels.attention_backward(bench.context(bytes), args);
  return dqkv;
}

TEST(Attention, EveryLevelAgreesWithRef) {
  for (const Case& c : cases()) {
    const Buffer qkv = Buffer::random(c.dtype, c.B * c.T * c.width(), 1);
    compare_levels(
        "attention " + c.text(),
        [&](const Kernels& kernels, Bench& bench) { return forward(c, qkv, kernels, bench); },
        [&](size_t output) {
          return output == 0 ? attention_tolerance(c.dtype) : kFloatTolerance;
        });
  }
}

TEST(Attention, EveryLevelsGradientAgreesWithRef) {
  for (const Case& c : cases()) {
    const Buffer qkv = Buffer::random(c.dtype, c.B * c.T * c.width(), 1);
    const Buffer dout = Buffer::random(c.dtype, c.B * c.T * c.H * c.D, 2);
    Bench bench(1);
    const Outputs result = forward(c, qkv, ref_kernels(), bench);
    compare_levels(
        "attention gradient " + c.text(),
        [&](const Kernels& kernels, Bench& b) {
          return Outputs{backward(c, qkv, result, dout, kernels, b)};
        },
        attention_tolerance(c.dtype));
  }
}

// A row of a batch must not know its neighbours.
TEST(Attention, RowsDoNotDependOnTheBatch) {
  const Case both = {2, 100, 2, 1, 16, {100, 90}};
  const Case second = {1, 100, 2, 1, 16, {90}};
  const Buffer qkv = Buffer::random(Dtype::kF32, 2 * 100 * both.width(), 1);
  Buffer row(Dtype::kF32, 100 * both.width());
  for (int64_t i = 0; i < row.size(); ++i) row.set(i, qkv[row.size() + i]);
  Bench bench(2);
  for (const char* name : available_levels()) {
    const Outputs whole = forward(both, qkv, *find_kernels(name), bench);
    const Outputs alone = forward(second, row, *find_kernels(name), bench);
    for (int64_t i = 0; i < alone[0].size(); ++i) {
      ASSERT_EQ(alone[0][i], whole[0][alone[0].size() + i]) << name << " at " << i;
    }
  }
}

TEST(Attention, GradientOfRefIsTheDifference) {
  const Case c = {2, 6, 2, 1, 4, {6, 4}};
  Buffer qkv = Buffer::random(c.dtype, c.B * c.T * c.width(), 1);
  const Buffer dout = Buffer::random(c.dtype, c.B * c.T * c.H * c.D, 2);
  Bench bench(1);
  const auto loss = [&] {
    const Outputs result = forward(c, qkv, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dout.size(); ++i) sum += dout[i] * result[0][i];
    return sum;
  };
  const Outputs result = forward(c, qkv, ref_kernels(), bench);
  const Buffer dqkv = backward(c, qkv, result, dout, ref_kernels(), bench);
  expect_differences(qkv, loss, dqkv, "dqkv");
}

// A prompt, then single positions, must give what attention over the whole gives.
TEST(Attention, CachedAgreesWithRef) {
  for (const Dtype dtype : kBothTypes) {
    for (const int64_t T : {1, 3, 70}) {
      const Case c = {2,    T, 4, 2, 16, {static_cast<int32_t>(T), static_cast<int32_t>(T / 2)},
                      dtype};
      const int64_t max_positions = 140;
      const std::vector<int32_t> starts = {65, 0};
      const Buffer qkv = Buffer::random(dtype, c.B * T * c.width(), 1);
      const Buffer cache = Buffer::random(dtype, c.B * max_positions * c.G * c.D, 2);
      compare_levels(
          fmt::format("cached attention T {} {}", T, dtype_name(dtype)),
          [&](const Kernels& kernels, Bench& bench) {
            Buffer k = cache, v = cache, out(dtype, c.B * T * c.H * c.D);
            const CachedAttentionArgs args = {.B = c.B,
                                              .T = T,
                                              .H = c.H,
                                              .G = c.G,
                                              .D = c.D,
                                              .max_positions = max_positions,
                                              .dtype = dtype,
                                              .scale = c.scale(),
                                              .qkv = qkv.data(),
                                              .starts = starts.data(),
                                              .lengths = c.lengths.data(),
                                              .k_cache = k.data(),
                                              .v_cache = v.data(),
                                              .out = out.data()};
            const size_t bytes = kernels.cached_attention_workspace(args, bench.num_threads());
            kernels.cached_attention(bench.context(bytes), args);
            return Outputs{k, v, out};
          },
          attention_tolerance(dtype));
    }
  }
}

}  // namespace
}  // namespace weft
