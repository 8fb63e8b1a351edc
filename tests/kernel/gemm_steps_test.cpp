// tests/kernel/gemm_steps_test.cpp: which calls a product becomes. gemm_test.cpp shows that they
// are right: its cases also run on the planned backend.
#include "kernel/gpu/gemm_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/kernel/planned_gemm.h"

namespace weft {
namespace {

// Memory that is aligned as a GPU's is.
class Memory {
 public:
  explicit Memory(size_t bytes)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256))),
        size_(bytes) {
    std::memset(bytes_, 0xff, bytes);
  }
  ~Memory() { std::free(bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* at(int64_t offset = 0) { return bytes_ + offset; }
  float* floats(int64_t offset = 0) { return reinterpret_cast<float*>(bytes_) + offset; }
  void fill(Dtype dtype, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    const int64_t n = static_cast<int64_t>(size_) / dtype_bytes(dtype);
    for (int64_t i = 0; i < n; ++i) store_element(bytes_, dtype, i, value(random));
  }

 private:
  std::byte* bytes_;
  size_t size_;
};

Stack one(void* at, int64_t rows, int64_t ld) {
  Stack s;
  s.count = 1;
  s.part[0] = at;
  s.rows[0] = rows;
  s.ld = ld;
  return s;
}

template <typename Call>
int count(const std::vector<GemmStep>& steps) {
  int found = 0;
  for (const GemmStep& step : steps) found += std::holds_alternative<Call>(step);
  return found;
}

std::vector<GemmStep> plan(const GemmArgs& args, Memory& workspace) {
  std::vector<GemmStep> steps;
  plan_gemm(args, workspace.at(), &steps);
  return steps;
}

// Aligned bf16 with q, k and v of 64, 16 and 16 rows, `gap` elements between them.
struct Linear {
  static constexpr int64_t kM = 32, kK = 64, kRows[3] = {64, 16, 16};
  Memory x{kM * kK * 2}, w{1 << 16}, bias{1 << 12}, y{kM * 96 * 4}, workspace{1 << 24};

  GemmArgs forward(int64_t gap, int64_t bias_gap) {
    GemmArgs g{};
    g.M = kM, g.N = 96, g.K = kK, g.dtype = g.c_dtype = Dtype::kBf16;
    g.a = x.at(), g.lda = kK, g.b_transposed = true;
    g.b.count = 3, g.b.ld = kK;
    int64_t at = 0, bias_at = 0;
    for (int p = 0; p < 3; ++p) {
      g.b.part[p] = w.at(at * 2);
      g.b.rows[p] = kRows[p];
      g.bias[p] = bias.at(bias_at * 2);
      at += kRows[p] * kK + gap;
      bias_at += kRows[p] + bias_gap;
    }
    g.c = one(y.at(), kM, 96);
    return g;
  }
};

TEST(GemmSteps, OneCallWhereEverythingIsContiguous) {
  Linear t;
  const auto steps = plan(t.forward(0, 0), t.workspace);
  ASSERT_EQ(steps.size(), 1u);
  const auto& call = std::get<LtCall>(steps[0]);
  const LtProblem want{.m = 96,
                       .n = 32,
                       .k = 64,
                       .lda = 64,
                       .ldb = 64,
                       .ldc = 96,
                       .ldd = 96,
                       .a_transposed = true,
                       .has_bias = true,
                       .dtype = Dtype::kBf16,
                       .d_dtype = Dtype::kBf16,
                       .alignment = 256};
  EXPECT_TRUE(call.problem == want);
  EXPECT_EQ(call.a, t.w.at());
  EXPECT_EQ(call.b, t.x.at());
  EXPECT_EQ(call.d, t.y.at());
  EXPECT_EQ(call.bias, t.bias.at());
}

// Biases that are padded to their own cells must not cut the product into three.
TEST(GemmSteps, BiasesApartAreCopiedTogether) {
  Linear t;
  const auto steps = plan(t.forward(0, 240), t.workspace);
  ASSERT_EQ(steps.size(), 2u);
  const auto& pack = std::get<PackCall>(steps[0]);
  EXPECT_EQ(pack.columns, 1);
  EXPECT_EQ(pack.from.count, 3);
  EXPECT_EQ(std::get<LtCall>(steps[1]).bias, pack.to);
}

TEST(GemmSteps, WeightsApartBecomeColumnsOfC) {
  Linear t;
  const auto steps = plan(t.forward(64, 0), t.workspace);
  ASSERT_EQ(count<LtCall>(steps), 3);
  EXPECT_EQ(steps.size(), 3u);
  int64_t column = 0;
  for (int p = 0; p < 3; ++p) {
    const auto& call = std::get<LtCall>(steps[static_cast<size_t>(p)]);
    EXPECT_EQ(call.problem.m, Linear::kRows[p]);
    EXPECT_EQ(call.d, t.y.at(column * 2));
    EXPECT_EQ(call.problem.ldd, 96);
    column += Linear::kRows[p];
  }
}

// The chain over k is one: dX copies separate weights, and uses contiguous ones in place.
TEST(GemmSteps, ContractedPartsAreOneCall) {
  for (int64_t gap : {0, 64}) {
    Linear t;
    GemmArgs g = t.forward(gap, 0);
    g.b_transposed = false;
    for (const void*& bias : g.bias) bias = nullptr;
    g.N = 64, g.K = 96, g.lda = 96;
    g.c = one(t.y.at(), g.M, 64);
    const auto steps = plan(g, t.workspace);
    EXPECT_EQ(count<LtCall>(steps), 1);
    EXPECT_EQ(count<PackCall>(steps), gap ? 1 : 0);
    EXPECT_EQ(std::get<LtCall>(steps.back()).problem.k, 96);
  }
}

TEST(GemmSteps, GradientsApartBecomeRowsOfC) {
  for (int64_t gap : {0, 64}) {
    Linear t;
    GemmArgs g{};
    g.M = 96, g.N = 64, g.K = 32, g.dtype = Dtype::kBf16, g.c_dtype = Dtype::kF32;
    g.a = t.y.at(), g.lda = 96, g.a_transposed = true;
    g.b = one(t.x.at(), 32, 64);
    g.accumulate = true;
    g.c.count = 3, g.c.ld = 64;
    for (int64_t p = 0, at = 0; p < 3; at += Linear::kRows[p++] * 64 + gap) {
      g.c.part[p] = t.w.floats(at);
      g.c.rows[p] = Linear::kRows[p];
    }
    const auto steps = plan(g, t.workspace);
    EXPECT_EQ(count<LtCall>(steps), gap ? 3 : 1);
    EXPECT_EQ(steps.size(), gap ? 3u : 1u);
    for (const GemmStep& step : steps) {
      const auto& call = std::get<LtCall>(step);
      EXPECT_TRUE(call.problem.adds_c && call.problem.c_is_d && call.problem.b_transposed);
      EXPECT_EQ(call.problem.d_dtype, Dtype::kF32);
    }
  }
}

// Product, addends in order, C, bias, one rounding: with magnitudes so far apart that another order
// yields other bits. Every path of the plan yields the same.
TEST(GemmSteps, AddendsAreAddedInTheirOrder) {
  constexpr int64_t kM = 24, kN = 40, kK = 32;
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    for (Dtype c_dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
      for (int num_addends = 0; num_addends <= 3; ++num_addends) {
        for (int bits = 0; bits < 16; ++bits) {
          if (c_dtype != Dtype::kF32 && c_dtype != dtype) continue;
          const bool accumulate = bits & 1, bias = bits & 2;
          const int64_t addend_shift = bits & 4 ? 1 : 0, c_shift = bits & 8 ? 1 : 0;
          Memory a(kM * kK * 4), b(kK * kN * 4), c(kM * kN * 4 + 16), biases(kN * 4);
          Memory addends(4 * kM * kN * 4 + 16), workspace(1 << 20);
          a.fill(dtype, 1), b.fill(dtype, 2), c.fill(c_dtype, 3), biases.fill(dtype, 4);
          addends.fill(Dtype::kF32, 5);
          for (int64_t i = 0; i < 4 * kM * kN; ++i) {
            addends.floats()[i] *= i / (kM * kN) == 1 ? 3e6f : 1e3f;
          }
          GemmArgs g{};
          g.M = kM, g.N = kN, g.K = kK, g.dtype = dtype, g.c_dtype = c_dtype;
          g.a = a.at(), g.lda = kK;
          g.b = one(b.at(), kK, kN);
          g.c = one(c.at(c_shift * dtype_bytes(c_dtype)), kM, kN);
          g.accumulate = accumulate;
          if (bias) g.bias[0] = biases.at();
          g.num_addends = num_addends;
          for (int i = 0; i < num_addends; ++i) {
            g.addend[i] = one(addends.floats(i * kM * kN + addend_shift), kM, kN);
          }
          std::vector<float> want;
          for (int64_t m = 0; m < kM; ++m) {
            for (int64_t n = 0; n < kN; ++n) {
              float sum = 0;
              for (int64_t k = 0; k < kK; ++k) {
                sum = std::fma(load_element(g.a, dtype, m * kK + k),
                               load_element(g.b.part[0], dtype, k * kN + n), sum);
              }
              for (int i = 0; i < num_addends; ++i) {
                sum += static_cast<float*>(g.addend[i].part[0])[m * kN + n];
              }
              if (accumulate) sum += load_element(g.c.part[0], c_dtype, m * kN + n);
              if (bias) sum += load_element(g.bias[0], dtype, n);
              store_element(&sum, c_dtype, 0, sum);
              want.push_back(load_element(&sum, c_dtype, 0));
            }
          }
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " to " << dtype_name(c_dtype)
                                          << " addends " << num_addends << " bits " << bits);
          for (const GemmStep& step : plan(g, workspace)) run_step(step);
          for (int64_t i = 0; i < kM * kN; ++i) {
            ASSERT_EQ(load_element(g.c.part[0], c_dtype, i), want[static_cast<size_t>(i)]) << i;
          }
        }
      }
    }
  }
}

// Leaves of exact mode: one addend in an fp32 slot needs no separate pass.
TEST(GemmSteps, OneAddendIsTheLibrarysC) {
  Memory memory(1 << 16), workspace(1 << 20);
  GemmArgs g{};
  g.M = 16, g.N = 16, g.K = 16;
  g.a = memory.at(), g.lda = 16;
  g.b = one(memory.floats(256), 16, 16);
  g.c = one(memory.floats(512), 16, 16);
  g.addend[0] = one(memory.floats(768), 16, 16);
  g.num_addends = 1;
  const auto steps = plan(g, workspace);
  ASSERT_EQ(steps.size(), 1u);
  const auto& call = std::get<LtCall>(steps[0]);
  EXPECT_EQ(call.c, g.addend[0].part[0]);
  EXPECT_EQ(call.d, g.c.part[0]);
  EXPECT_TRUE(call.problem.adds_c && !call.problem.c_is_d);
}

// Extents that are not whole steps: the ends are separate blocks, copied, summed and cut off.
TEST(GemmSteps, RaggedEndsAreSeparateBlocks) {
  Memory memory(1 << 20), workspace(1 << 20);
  GemmArgs g{};
  g.M = 19, g.N = 29, g.K = 64, g.dtype = g.c_dtype = Dtype::kBf16;
  for (int bits = 0; bits < 4; ++bits) {
    g.a_transposed = bits & 1, g.b_transposed = bits & 2;
    g.a = memory.at(), g.lda = 64;
    g.b = one(memory.at(1 << 18), g.b_transposed ? g.N : g.K, 64);
    g.c = one(memory.at(1 << 19), g.M, 32);
    const auto steps = plan(g, workspace);
    const int row_blocks = g.a_transposed ? 2 : 1;  // 19 = 16 + 3; 29 = 24 + 5
    EXPECT_EQ(count<LtCall>(steps), 2 * row_blocks);
    EXPECT_EQ(count<SumCall>(steps), 2 * row_blocks - 1);
    const auto& first = std::get<LtCall>(steps[0]);
    EXPECT_EQ(first.problem.m, 24);
    EXPECT_EQ(first.problem.n, g.a_transposed ? 16 : 19);
    EXPECT_EQ(first.d, g.c.part[0]);
    const auto& last = std::get<SumCall>(steps.back());
    EXPECT_EQ(last.columns, 5);
    EXPECT_EQ(last.rows, g.a_transposed ? 3 : 19);
    EXPECT_EQ(last.product_ld, 8);
  }
}

// Blocks by size: copies and temporaries of large products stay below the bound, and the blocks
// tile C. No memory is touched: the pointers are never dereferenced.
TEST(GemmSteps, LargeProductsAreCutIntoBlocks) {
  const auto fake = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  for (int shape = 0; shape < 3; ++shape) {
    GemmArgs g{};
    g.M = 8192, g.N = shape == 0 ? 50257 : 768, g.K = shape == 0 ? 768 : 50257;
    if (shape == 2) g.M = 768, g.N = 50257, g.K = 8192;
    g.dtype = g.c_dtype = Dtype::kBf16;
    g.a = fake(uintptr_t{1} << 40);
    g.a_transposed = shape == 2;
    g.lda = g.a_transposed ? g.M : g.K;
    g.b_transposed = shape == 0;
    g.b = one(fake(uintptr_t{2} << 40), g.b_transposed ? g.N : g.K, g.b_transposed ? g.K : g.N);
    g.c = one(fake(uintptr_t{3} << 40), g.M, g.N);
    auto* workspace = static_cast<std::byte*>(fake(uintptr_t{4} << 40));
    const auto end = reinterpret_cast<uintptr_t>(workspace) + gemm_steps_workspace(g);
    std::vector<GemmStep> steps;
    plan_gemm(g, workspace, &steps);
    int64_t area = 0;
    for (const GemmStep& step : steps) {
      if (const auto* pack = std::get_if<PackCall>(&step)) {
        const auto at = reinterpret_cast<uintptr_t>(pack->to);
        EXPECT_LE(at + static_cast<uintptr_t>(pack->from.rows[0] * pack->to_ld * 2), end);
      } else if (const auto* call = std::get_if<LtCall>(&step)) {
        EXPECT_EQ(call->problem.k, g.K);
        const auto at = reinterpret_cast<uintptr_t>(call->d);
        if (at < reinterpret_cast<uintptr_t>(workspace)) {
          area += call->problem.m * call->problem.n;
        } else {
          EXPECT_LE(at + static_cast<uintptr_t>(call->problem.n * call->problem.ldd * 4), end);
        }
      } else {
        const auto& sum = std::get<SumCall>(step);
        area += sum.rows * sum.columns;
      }
    }
    EXPECT_EQ(area, g.M * g.N);
    EXPECT_LE(count<LtCall>(steps), 64);
  }
}

}  // namespace
}  // namespace weft
