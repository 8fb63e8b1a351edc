// tests/kernel/attention_test.cpp: causal attention and its gradient.
#include <fmt/core.h>

#include "tests/kernel/attention_case.h"
#include "tests/kernel/fewer_types.h"

namespace weft {
namespace {

using Case = AttentionCase;

std::vector<Case> attention_cases() {
  std::vector<Case> list;
  for (const Dtype dtype : kAllTypes) {
    list.push_back({1, 1, 1, 1, 8, {1}, dtype});
    list.push_back({2, 5, 2, 1, 2, {5, 3}, dtype});
    list.push_back({2, 64, 2, 2, 16, {64, 63}, dtype});
    list.push_back({3, 65, 4, 2, 10, {65, 0, 1}, dtype});
    list.push_back(packed({2, 200, 4, 2, 16, {}, dtype}, {{64, 65, 1, 70}, {3, 127, 30}}));
    list.push_back({2, 140, 3, 1, 64, {130, 20}, dtype, {}, true});
    if (dtype == Dtype::kF16) continue;  // its code is that of bf16
    list.push_back({2, 130, 3, 1, 64, {130, 77}, dtype});
    list.push_back({1, 200, 1, 1, 18, {197}, dtype});
    list.push_back({1, 70, 2, 1, 80, {70}, dtype});
    list.push_back({1, 40, 1, 1, 128, {33}, dtype});
    list.push_back({1, 20, 1, 1, 256, {20}, dtype});
    // Segments of one token, of a block and one more, across blocks of 64 keys and 128 queries.
    list.push_back(packed({2, 9, 2, 1, 4, {}, dtype}, {{1, 1, 3, 4}, {2, 5}}));
    list.push_back(packed({3, 300, 2, 2, 18, {}, dtype}, {{130, 170}, {}, {7, 11, 200, 13, 60}}));
    list.push_back(packed({1, 140, 3, 1, 64, {}, dtype}, {{140}}));
    // Padding after nothing, one token, a block, within a block of keys and one of queries.
    list.push_back({2, 5, 2, 1, 2, {5, 3}, dtype, {}, true});
    list.push_back({4, 200, 4, 2, 16, {0, 1, 64, 200}, dtype, {}, true});
    list.push_back({4, 330, 2, 1, 18, {63, 65, 150, 329}, dtype, {}, true});
  }
  return with_fewer_types_under_asan(list);
}

class AttentionRows : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionRows, EveryLevelAgreesWithRef) {
  const Case& c = GetParam();
  const Buffer qkv = Buffer::random(c.dtype, c.B * c.T * c.width(), 1);
  check_forward(c, qkv);
}

TEST_P(AttentionRows, EveryLevelsGradientAgreesWithRef) {
  const Case& c = GetParam();
  const Buffer qkv = Buffer::random(c.dtype, c.B * c.T * c.width(), 1);
  const Buffer dout = Buffer::random(c.dtype, c.B * c.T * c.H * c.D, 2);
  check_gradient(c, qkv, dout);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionRows, ::testing::ValuesIn(attention_cases()),
                         text_name<Case>);

// A row of a batch must not depend on its neighbours, forward and backward.
TEST(Attention, RowsDoNotDependOnTheBatch) {
  for (const Dtype dtype : kAllTypes) {
    const Case both = {2, 100, 2, 1, 16, {100, 90}, dtype};
    const Case second = {1, 100, 2, 1, 16, {90}, dtype};
    const auto half = [&](const Buffer& of) {
      Buffer out(dtype, of.size() / 2);
      for (int64_t i = 0; i < out.size(); ++i) out.set(i, of[out.size() + i]);
      return out;
    };
    const Buffer qkv = Buffer::random(dtype, 2 * 100 * both.width(), 1);
    const Buffer dout = Buffer::random(dtype, 2 * 100 * both.H * both.D, 2);
    Bench bench(2);
    for (const Kernels* kernels : tested_kernels(dtype)) {
      const Outputs whole = forward(both, qkv, *kernels, bench);
      const Outputs alone = forward(second, half(qkv), *kernels, bench);
      const Buffer dwhole = backward(both, qkv, whole, dout, *kernels, bench);
      const Buffer dalone = backward(second, half(qkv), alone, half(dout), *kernels, bench);
      EXPECT_TRUE(alone[0].same_bits(half(whole[0]))) << kernels->name << dtype_name(dtype);
      EXPECT_TRUE(dalone.same_bits(half(dwhole))) << kernels->name << dtype_name(dtype);
    }
  }
}

// A segment of a packed row has the bits that it would have as a separate row, forward and
// backward, at every level and in ref. The only exceptions are bf16 and fp16 on a GPU: cuDNN's
// tiles begin with the row.
TEST(Attention, ASegmentEqualsARow) {
  const std::vector<int> segments = {70, 1, 129, 40};
  for (const Dtype dtype : kAllTypes) {
    const Case whole = packed({1, 256, 4, 2, 16, {}, dtype}, {segments});
    const Buffer qkv = Buffer::random(dtype, whole.T * whole.width(), 1);
    const Buffer dout = Buffer::random(dtype, whole.T * whole.H * whole.D, 2);
    Bench bench(2);
    for (const Kernels* tested : tested_kernels_and_ref(dtype)) {
      const Kernels& kernels = *tested;
      const std::string name = kernels.name;
      if (name == "cuda" && dtype != Dtype::kF32) continue;
      const Outputs all = forward(whole, qkv, kernels, bench);
      const Buffer dqkv = backward(whole, qkv, all, dout, kernels, bench);
      int64_t begin = 0;
      for (const int length : segments) {
        const Case alone = {1, length, 4, 2, 16, {length}, dtype};
        const auto part = [&](const Buffer& of, int64_t columns) {
          Buffer out(dtype, length * columns);
          for (int64_t i = 0; i < out.size(); ++i) out.set(i, of[begin * columns + i]);
          return out;
        };
        const Buffer row = part(qkv, whole.width());
        const Outputs one = forward(alone, row, kernels, bench);
        const Buffer gradient =
            backward(alone, row, one, part(dout, whole.H * whole.D), kernels, bench);
        for (int64_t i = 0; i < one[0].size(); ++i) {
          ASSERT_EQ(one[0][i], all[0][begin * whole.H * whole.D + i]) << name << " at " << i;
        }
        for (int64_t i = 0; i < gradient.size(); ++i) {
          ASSERT_EQ(gradient[i], dqkv[begin * whole.width() + i]) << name << " d at " << i;
        }
        begin += length;
      }
    }
  }
}

// Control: a segment does not affect any other, but does affect its own later positions.
TEST(Attention, SegmentsDoNotLeak) {
  const Case c = packed({1, 100, 2, 1, 16, {}}, {{40, 60}});
  const Buffer qkv = Buffer::random(c.dtype, c.T * c.width(), 1);
  Buffer changed = qkv;
  for (int64_t i = 0; i < c.width(); ++i) changed.set(30 * c.width() + i, 3.0);
  Case one_segment = c;
  one_segment.positions.clear();
  const int64_t row = c.H * c.D;
  const auto differs = [&](const Outputs& a, const Outputs& b, int64_t begin, int64_t end) {
    for (int64_t i = begin * row; i < end * row; ++i) {
      if (a[0][i] != b[0][i]) return true;
    }
    return false;
  };
  Bench bench(1);
  for (const Kernels* tested : tested_kernels_and_ref(c.dtype)) {
    const Kernels& kernels = *tested;
    const char* name = kernels.name;
    const Outputs before = forward(c, qkv, kernels, bench),
                  after = forward(c, changed, kernels, bench);
    EXPECT_FALSE(differs(before, after, 0, 30)) << name;
    EXPECT_TRUE(differs(before, after, 31, 40)) << name;
    EXPECT_FALSE(differs(before, after, 40, 100)) << name;
    EXPECT_TRUE(differs(forward(one_segment, qkv, kernels, bench),
                        forward(one_segment, changed, kernels, bench), 40, 100))
        << name;
  }
}

// Padding that attends changes nothing before it, sees no padding, and has the output of a separate
// query after the row.
TEST(Attention, PaddingAttendsToItsRow) {
  for (const Dtype dtype : kAllTypes) {
    const Case c = {2, 200, 4, 2, 16, {70, 0}, dtype, {}, true};
    Case without = c;
    without.padding_attends = false;
    const Buffer qkv = Buffer::random(dtype, c.B * c.T * c.width(), 1);
    // Other keys and values after the row.
    Buffer changed = qkv;
    for (int64_t t = 70; t < c.T; ++t) {
      for (int64_t i = c.H * c.D; i < c.width(); ++i) changed.set(t * c.width() + i, 3.0);
    }
    const int64_t row = c.H * c.D;
    Bench bench(2);
    for (const Kernels* tested : tested_kernels_and_ref(dtype)) {
      const Kernels& kernels = *tested;
      const char* name = kernels.name;
      const bool is_cudnn = std::string(name) == "cuda" && dtype != Dtype::kF32;
      const Outputs with = forward(c, qkv, kernels, bench);
      const Outputs other = forward(c, changed, kernels, bench);
      const Outputs plain = forward(without, qkv, kernels, bench);
      for (int64_t i = 0; i < c.B * c.T * row; ++i) {
        const bool is_row = i < 70 * row, is_empty = i >= c.T * row;
        ASSERT_EQ(with[0][i], other[0][i]) << name << " at " << i;
        if ((is_row || is_empty) && !is_cudnn) {
          ASSERT_EQ(with[0][i], plain[0][i]) << name << " at " << i;
        }
      }
      double padded = 0.0;
      for (int64_t i = 70 * row; i < c.T * row; ++i) padded += std::abs(with[0][i]);
      EXPECT_GT(padded, 0.0) << name;
    }
  }
}

TEST(Attention, GradientOfRefIsTheDifference) {
  for (const Case& c :
       {Case{2, 6, 2, 1, 4, {6, 4}}, packed({2, 6, 2, 1, 4, {}}, {{2, 4}, {1, 2, 2}}),
        Case{3, 6, 2, 1, 4, {2, 5, 0}, Dtype::kF32, {}, true}}) {
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
}

}  // namespace
}  // namespace weft
