// tests/exec/products_test.cpp: a tree of leaves has the same bits whole and in blocks of rows.
#include "exec/products.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace weft {
namespace {

constexpr int64_t kM = 900, kN = 24, kK = 16;

class LeavesTest : public testing::TestWithParam<Dtype> {
 protected:
  LeavesTest() {
    std::mt19937 draw(7);
    const auto next = [&] { return std::normal_distribution<float>()(draw); };
    for (int64_t i = 0; i < kM * kColumns; ++i) store_element(x_.data(), GetParam(), i, next());
    for (int64_t i = 0; i < kColumns * kN; ++i) store_element(w_.data(), GetParam(), i, next());
  }

  // Four leaves, of one product and of three in turn.
  std::vector<std::vector<GemmArgs>> leaves() {
    std::vector<std::vector<GemmArgs>> all;
    int64_t column = 0;
    for (const size_t num_products : {1u, 3u, 1u, 3u}) {
      std::vector<GemmArgs>& leaf = all.emplace_back();
      for (size_t p = 0; p < num_products; ++p, column += kK) {
        GemmArgs a{};
        a.M = kM, a.N = kN, a.K = kK;
        a.dtype = GetParam();
        a.a = x_.data() + column * dtype_bytes(GetParam());
        a.lda = kColumns;
        a.b = single_stack(w_.data() + column * kN * dtype_bytes(GetParam()), kK, kN);
        leaf.push_back(a);
      }
    }
    return all;
  }

  std::vector<std::byte> result(int64_t most_bytes, Products* made) {
    std::vector<std::byte> y(static_cast<size_t>(kM * kN * dtype_bytes(GetParam())));
    const Stack c = single_stack(y.data(), kM, kN);
    add_leaves(leaves(), c, GetParam(), most_bytes, nullptr, made);
    std::vector<std::byte> workspace(static_cast<size_t>(made->partial_bytes));
    made->calls.clear();
    add_leaves(leaves(), c, GetParam(), most_bytes, workspace.data(), made);
    const Context context{};
    for (const GemmArgs& call : made->calls) ref_kernels().gemm(context, call);
    return y;
  }

 private:
  static constexpr int64_t kColumns = 8 * kK;
  std::vector<std::byte> x_ = std::vector<std::byte>(kM * kColumns * 4);
  std::vector<std::byte> w_ = std::vector<std::byte>(kColumns * kN * 4);
};

TEST_P(LeavesTest, BlocksHaveTheBitsOfTheWhole) {
  Products whole, blocks;
  const auto want = result(kAnySumsBytes, &whole);
  const auto got = result(200 * kN * 4 * 4, &blocks);
  EXPECT_EQ(whole.calls.size(), 8u);
  EXPECT_GE(blocks.calls.size(), 4 * 8u);
  EXPECT_LT(blocks.partial_bytes, whole.partial_bytes / 2);
  EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, LeavesTest, testing::Values(Dtype::kF32, Dtype::kBf16));

}  // namespace
}  // namespace weft
