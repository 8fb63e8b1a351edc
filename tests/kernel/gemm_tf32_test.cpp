// tests/kernel/gemm_tf32_test.cpp: TF32 where it is allowed, fp32 everywhere else.
#include <cstdlib>

#include "kernel/gpu/cuda_options.h"
#include "tensor/device.h"
#include "tests/kernel/common.h"

namespace weft {
namespace {

constexpr int64_t kM = 512, kN = 512, kK = 1024;

// The errors of a product, by the root of the sum of its squared terms, as a root mean square over
// elements: independent errors of operands add up like that. Additions in fp32 alone give 2^-21.
// TF32 operands give 0.6 of 2^-11 where they are rounded to the nearest and 1.6 where they are cut;
// bf16, 3 bits less, gives 4.9 (TheBoundsDistinguishTypes).
constexpr double kMostFp32 = 0x1p-18, kLeastTf32 = 0x1p-13, kMostTf32 = 0x1p-10;

struct Tf32Product {
  Buffer a = Buffer::random(Dtype::kF32, kM*kK, 1), b = Buffer::random(Dtype::kF32, kN*kK, 2);

  Buffer run(const Kernels& kernels, const Buffer& left, const Buffer& right) const {
    Buffer c(Dtype::kF32, kM * kN);
    GemmArgs g{};
    g.M = kM, g.N = kN, g.K = kK;
    g.dtype = left.dtype(), g.c_dtype = Dtype::kF32;
    g.a = left.data(), g.lda = kK;
    g.b = {{const_cast<void*>(right.data())}, {kN}, 1, kK};
    g.b_transposed = true;
    g.c = {{c.data()}, {kM}, 1, kN};
    Bench bench(2);
    kernels.gemm(bench.context(kernels.gemm_workspace(g, 2)), g);
    EXPECT_TRUE(c.guard_intact());
    return c;
  }
  Buffer run(const Kernels& kernels) const { return run(kernels, a, b); }

  // Of every 8th row, every 7th column at a place that moves.
  double error_of(const Buffer& c) const {
    double squares = 0;
    int64_t count = 0;
    for (int64_t m = 0; m < kM; m += 8) {
      for (int64_t n = m / 8 % 7; n < kN; n += 7, ++count) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double term = a[m * kK + k] * b[n * kK + k];
          want += term;
          size += term * term;
        }
        const double error = c[m * kN + n] - want;
        squares += error * error / size;
      }
    }
    return std::sqrt(squares / static_cast<double>(count));
  }
};

// Without its lowest bits, cut or rounded to the nearest (a half goes up).
Buffer with_fewer_bits(const Buffer& x, int bits, bool is_cut) {
  Buffer y = x;
  for (int64_t i = 0; i < y.size(); ++i) {
    uint32_t word = 0;
    std::memcpy(&word, y.at(i), sizeof word);
    if (!is_cut) word += uint32_t{1} << (bits - 1);
    word = word >> bits << bits;
    std::memcpy(y.at(i), &word, sizeof word);
  }
  return y;
}

// Restores the initial setting, however a test ends.
class GemmTf32 : public ::testing::Test {
 protected:
  GemmTf32() {
    setenv("XDG_CACHE_HOME", ::testing::TempDir().c_str(), 1);  // measurements are not for others
    set_gemm_choice(GemmChoice::kFast);
    set_tf32(false);
  }
  ~GemmTf32() override {
    set_gemm_choice(GemmChoice::kFast);
    set_tf32(false);
  }
  const Tf32Product product_;
};

// Negative control: the bounds distinguish fp32, TF32 and bf16.
TEST_F(GemmTf32, TheBoundsDistinguishTypes) {
  const Kernels& kernels = *tested_kernels().back();
  const auto error_with = [&](int bits, bool is_cut) {
    return product_.error_of(product_.run(kernels, with_fewer_bits(product_.a, bits, is_cut),
                                          with_fewer_bits(product_.b, bits, is_cut)));
  };
  EXPECT_LT(product_.error_of(product_.run(kernels)), kMostFp32);
  for (const bool is_cut : {false, true}) {
    EXPECT_GT(error_with(13, is_cut), kLeastTf32) << is_cut;
    EXPECT_LT(error_with(13, is_cut), kMostTf32) << is_cut;
    EXPECT_GT(error_with(16, is_cut), kMostTf32) << is_cut;
  }
}

bool has_tf32(const Kernels& kernels) {
  return std::string(kernels.name) == "cuda" && read_cuda_info().gpus.at(0).major >= 8;
}

TEST_F(GemmTf32, IsUsedWhileItIsAllowed) {
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels == &ref_kernels()) continue;  // slow, and the reference of the others
    SCOPED_TRACE(kernels->name);
    const Buffer before = product_.run(*kernels);
    EXPECT_LT(product_.error_of(before), kMostFp32);
    set_tf32(true);
    const double error = product_.error_of(product_.run(*kernels));
    if (has_tf32(*kernels)) {
      EXPECT_GT(error, kLeastTf32);
      EXPECT_LT(error, kMostTf32);
    } else {
      EXPECT_LT(error, kMostFp32);
    }
    set_gemm_choice(GemmChoice::kExact);
    EXPECT_LT(product_.error_of(product_.run(*kernels)), kMostFp32) << "exact mode";
    set_gemm_choice(GemmChoice::kFast);
    set_tf32(false);
    EXPECT_TRUE(product_.run(*kernels).same_bits(before));
  }
}

TEST_F(GemmTf32, Bf16OperandsAreUnaffected) {
  const Buffer a = Buffer::random(Dtype::kBf16, kM * kK, 1);
  const Buffer b = Buffer::random(Dtype::kBf16, kN * kK, 2);
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels == &ref_kernels()) continue;
    const Buffer before = product_.run(*kernels, a, b);
    set_tf32(true);
    EXPECT_TRUE(product_.run(*kernels, a, b).same_bits(before)) << kernels->name;
    set_tf32(false);
  }
}

}  // namespace
}  // namespace weft
