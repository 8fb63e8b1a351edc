// tests/comm/reduce_test.cpp: the tree itself, for any number of addends.
#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/comm/tree.h"

namespace weft::testing {
namespace {

TEST(ReduceTree, IsTheTreeOfTheContract) {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 63, 255}) {
    for (const Dtype dtype : kReduced) {
      const int64_t count = n < 20 ? 1200 : 70;
      const int64_t bytes = count * dtype_bytes(dtype);
      std::vector<std::vector<char>> in(static_cast<size_t>(n),
                                        std::vector<char>(static_cast<size_t>(bytes)));
      std::vector<const void*> pointers;
      for (int rank = 0; rank < n; ++rank) {
        fill(in[static_cast<size_t>(rank)].data(), dtype, 5, rank, 0, count);
        pointers.push_back(in[static_cast<size_t>(rank)].data());
      }
      // The last one in place of an addend, as all_reduce does.
      std::vector<char> apart(static_cast<size_t>(bytes));
      for (const Reduce op : {Reduce::kMax, Reduce::kSum}) {
        reduce_tree(pointers.data(), n, apart.data(), count, dtype, op);
        EXPECT_EQ(compare_reduced(apart.data(), dtype, op, 5, n, 0, count), "");
      }
      char* own = in[static_cast<size_t>(n / 2)].data();
      reduce_tree(pointers.data(), n, own, count, dtype, Reduce::kSum);
      EXPECT_EQ(compare_reduced(own, dtype, Reduce::kSum, 5, n, 0, count), "");
    }
  }
}

TEST(ReduceTree, NanWinsEveryMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int where = 0; where < 3; ++where) {
    float values[3] = {1, -2, 3};
    values[where] = nan;
    const void* in[3] = {&values[0], &values[1], &values[2]};
    float out = 0;
    reduce_tree(in, 3, &out, 1, Dtype::kF32, Reduce::kMax);
    EXPECT_TRUE(std::isnan(out)) << where;
  }
}

// Each addend is below half of bf16's resolution at 256: added one by one they would be lost.
TEST(ReduceTree, Bf16IsRoundedOnce) {
  const Bf16 values[4] = {to_bf16(256), to_bf16(0.75f), to_bf16(0.75f), to_bf16(0.75f)};
  const void* in[4] = {&values[0], &values[1], &values[2], &values[3]};
  Bf16 out{};
  reduce_tree(in, 4, &out, 1, Dtype::kBf16, Reduce::kSum);
  EXPECT_EQ(to_float(out), 258);
}

// Every bf16 value, NaNs among them, plus zero: equal to to_bf16 of the fp32 sum.
TEST(ReduceTree, Bf16RoundsAsToBf16Does) {
  std::vector<Bf16> all(1 << 16), other(1 << 16), out(1 << 16);
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    all[bits] = Bf16{static_cast<uint16_t>(bits)};
    other[bits] = Bf16{static_cast<uint16_t>(bits * 40503u)};
  }
  const void* in[2] = {all.data(), other.data()};
  reduce_tree(in, 2, out.data(), 1 << 16, Dtype::kBf16, Reduce::kSum);
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    const Bf16 wanted = to_bf16(to_float(all[i]) + to_float(other[i]));
    // Which NaN a sum of two yields is up to the processor; that it is a quiet one is up to us.
    const bool is_nan = std::isnan(to_float(wanted));
    ASSERT_EQ(std::isnan(to_float(out[i])), is_nan) << i;
    if (!is_nan) {
      ASSERT_EQ(out[i].bits, wanted.bits) << i;
    }
  }
}

TEST(ReduceTree, IntegersWrap) {
  const int64_t most = std::numeric_limits<int64_t>::max(), one = 1;
  const void* in[2] = {&most, &one};
  int64_t out = 0;
  reduce_tree(in, 2, &out, 1, Dtype::kI64, Reduce::kSum);
  EXPECT_EQ(out, std::numeric_limits<int64_t>::min());
}

TEST(ReduceTree, RejectsOtherTypes) {
  const char byte = 0;
  const void* in[1] = {&byte};
  char out = 0;
  EXPECT_THROW(reduce_tree(in, 1, &out, 1, Dtype::kI8, Reduce::kSum), BugError);
}

}  // namespace
}  // namespace weft::testing
