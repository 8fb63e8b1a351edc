// tests/kernel/gemm_own_test.cpp: the GPU's built-in product, emulated: its bits are one chain in
// the order of k, for any cut.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernel/cpu/level.h"
#include "kernel/kernels.h"
#include "tests/kernel/emulated_cuda/grid.h"
#include "tests/kernel/planned_gemm.h"
#include "tests/kernel/tested.h"

namespace weft {
// kernel/cuda/gemm_own.h, as the tests compile it.
namespace emulated {
void own_product(const Context& context, const LtCall& call);
}

namespace {

const Dtype kOwnDtypes[][2] = {{Dtype::kF32, Dtype::kF32},
                               {Dtype::kBf16, Dtype::kBf16},
                               {Dtype::kBf16, Dtype::kF32},
                               {Dtype::kF16, Dtype::kF16},
                               {Dtype::kF16, Dtype::kF32}};

// 16-byte aligned elements.
class Elements {
 public:
  Elements(Dtype dtype, int64_t n, uint32_t seed)
      : dtype_(dtype), words_(static_cast<size_t>(n + 3)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    for (int64_t i = 0; i < n; ++i) store_element(at(), dtype, i, value(random));
  }
  std::byte* at(int64_t i = 0) {
    return reinterpret_cast<std::byte*>(words_.data()) + i * dtype_bytes(dtype_);
  }
  bool operator==(const Elements& other) const {
    return std::memcmp(words_.data(), other.words_.data(), words_.size() * sizeof(Word)) == 0;
  }

 private:
  struct alignas(16) Word {
    float v[4] = {};
  };
  Dtype dtype_;
  std::vector<Word> words_;
};

LtProblem problem(int64_t m, int64_t n, int64_t k, const Dtype (&dtypes)[2], int bits) {
  LtProblem p;
  p.m = m, p.n = n, p.k = k, p.dtype = dtypes[0], p.d_dtype = dtypes[1];
  p.a_transposed = bits & 1, p.b_transposed = bits & 2, p.adds_c = bits & 4;
  p.has_bias = (bits & 8) && !p.adds_c && p.dtype == p.d_dtype;
  const auto step = [](int64_t extent) { return (extent + 7) / 8 * 8; };
  p.lda = step(p.a_transposed ? k : m) + 8;
  p.ldb = step(p.b_transposed ? n : k);
  p.ldc = p.ldd = step(m);
  p.c_is_d = !(bits & 16);
  return p;
}

struct Product {
  LtProblem p;
  Elements a, b, c, bias, d;

  explicit Product(const LtProblem& problem)
      : p(problem),
        a(p.dtype, p.lda * (p.a_transposed ? p.m : p.k), 1),
        b(p.dtype, p.ldb * (p.b_transposed ? p.k : p.n), 2),
        c(p.d_dtype, p.ldc * p.n, 3),
        bias(p.d_dtype, p.m, 4),
        d(p.d_dtype, p.ldd * p.n, 5) {}
  LtCall call() {
    LtCall call;
    call.problem = p;
    call.a = a.at(), call.b = b.at(), call.d = d.at();
    call.c = p.c_is_d ? d.at() : c.at();
    call.bias = p.has_bias ? bias.at() : nullptr;
    return call;
  }
};

class GemmOwn : public testing::Test {
 public:
  ~GemmOwn() override { emulated_cuda::set_order(emulated_cuda::Order::kForward); }
};

// Extents around those of a tile and of a slice; the gaps between the columns stay unchanged.
TEST_F(GemmOwn, HasTheBitsOfOneChain) {
  const int64_t shapes[][3] = {{8, 1, 1}, {24, 17, 16}, {136, 72, 37}, {128, 64, 33}};
  int turn = 0;
  for (const auto& dtypes : kOwnDtypes) {
    for (const auto& [m, n, k] : shapes) {
      for (int bits = 0; bits < 32; ++bits) {
        const bool is_whole = (bits & 2) == 0;  // n may be any where op(B) is not transposed
        const LtProblem p = problem(m, is_whole ? n : (n + 7) / 8 * 8, k, dtypes, bits);
        SCOPED_TRACE(testing::Message() << m << " " << n << " " << k << " bits " << bits << " "
                                        << dtype_name(p.dtype) << dtype_name(p.d_dtype));
        Product own(p), loops(p);
        emulated_cuda::set_order(static_cast<emulated_cuda::Order>(turn++ % 3));
        emulated::own_product({}, own.call());
        run_step(loops.call());
        ASSERT_TRUE(own.d == loops.d);
      }
    }
  }
}

// Any m and n: the kernel itself has no step size.
TEST_F(GemmOwn, EveryCutHasTheBitsOfTheWhole) {
  for (const auto& dtypes : kOwnDtypes) {
    for (int bits = 0; bits < 8; ++bits) {
      const LtProblem p = problem(200, 101, 50, dtypes, bits);
      Product whole(p);
      emulated::own_product({}, whole.call());
      const auto cut = [&](int64_t m0, int64_t rows, int64_t n0, int64_t columns) {
        Product part(p);
        LtCall call = part.call();
        call.problem.m = rows, call.problem.n = columns;
        call.a = part.a.at(p.a_transposed ? m0 * p.lda : m0);
        call.b = part.b.at(p.b_transposed ? n0 : n0 * p.ldb);
        call.c = call.d = part.d.at(n0 * p.ldd + m0);
        emulated::own_product({}, call);
        for (int64_t n = n0; n < n0 + columns; ++n) {
          ASSERT_EQ(std::memcmp(part.d.at(n * p.ldd + m0), whole.d.at(n * p.ldd + m0),
                                static_cast<size_t>(rows * dtype_bytes(p.d_dtype))),
                    0)
              << m0 << " " << rows << " " << n0 << " " << columns << " column " << n;
        }
      };
      cut(0, 1, 0, 101);
      cut(0, 200, 96, 1);
      cut(8, 137, 0, 64);
      cut(128, 72, 8, 93);
      cut(192, 3, 40, 17);
    }
  }
}

// The CPU's fp32 products are the same chains: exact mode has the same bits there.
TEST_F(GemmOwn, HasTheBitsOfTheCpu) {
  const LtProblem p = problem(104, 40, 700, kOwnDtypes[0], 1);
  Product own(p), cpu(p);
  emulated::own_product({}, own.call());
  GemmArgs g{};  // row-major: the operands in the other order
  g.M = p.n, g.N = p.m, g.K = p.k;
  g.a = cpu.b.at(), g.lda = p.ldb;
  g.b_transposed = true;
  g.b.count = g.c.count = 1;
  g.b.part[0] = cpu.a.at(), g.b.rows[0] = p.m, g.b.ld = p.lda;
  g.c.part[0] = cpu.d.at(), g.c.rows[0] = p.n, g.c.ld = p.ldd;
  ThreadPool pool(1);
  const Kernels& level = *find_kernels(available_levels().back());
  TestVector<std::byte> workspace(level.gemm_workspace(g, 1));
  level.gemm(Context{&pool, workspace.data(), workspace.size(), nullptr}, g);
  EXPECT_TRUE(own.d == cpu.d);
}

}  // namespace
}  // namespace weft
