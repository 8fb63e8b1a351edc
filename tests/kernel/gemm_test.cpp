// tests/kernel/gemm_test.cpp: the product against a float64 loop, and its promises about bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/gpu/cuda_options.h"
#include "kernel/kernels.h"
#include "tests/kernel/planned_gemm.h"
#include "tests/kernel/tested.h"

namespace weft {
namespace {

// Elements of fp32 or bf16, rows `ld` apart. The gaps between rows are NaN: reading them into a
// result is detected.
struct Matrix {
  Dtype dtype;
  int64_t rows, cols, ld;
  TestVector<std::byte> bytes;

  Matrix(Dtype type, int64_t r, int64_t c, int64_t pad)
      : dtype(type),
        rows(r),
        cols(c),
        ld(c + pad),
        bytes(static_cast<size_t>(std::max<int64_t>(rows * ld, 1) * dtype_bytes(dtype))) {
    for (int64_t i = 0; i < rows * ld; ++i) {
      store_element(bytes.data(), dtype, i, std::numeric_limits<float>::quiet_NaN());
    }
  }
  void* row(int64_t i) { return bytes.data() + i * ld * dtype_bytes(dtype); }
  float get(int64_t i, int64_t j) const { return load_element(bytes.data(), dtype, i * ld + j); }
  void set(int64_t i, int64_t j, float v) { store_element(bytes.data(), dtype, i * ld + j, v); }
  void fill(std::mt19937& random) {
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) set(i, j, value(random));
    }
  }
};

struct Problem {
  int64_t M, N, K;
  Dtype dtype = Dtype::kF32, c_dtype = Dtype::kF32;
  bool a_transposed = false, b_transposed = false, accumulate = false, bias = false;
  std::vector<int64_t> b_parts{}, c_parts{};  // rows of the parts; empty: one part
  int64_t pad = 3;
};

std::string describe(const Problem& p) {
  std::string text = "M " + std::to_string(p.M) + " N " + std::to_string(p.N) + " K " +
                     std::to_string(p.K) + " " + dtype_name(p.dtype) + " to " +
                     dtype_name(p.c_dtype);
  if (p.a_transposed) text += " a_transposed";
  if (p.b_transposed) text += " b_transposed";
  if (p.accumulate) text += " accumulate";
  if (p.bias) text += " bias";
  for (int64_t rows : p.b_parts) text += " b:" + std::to_string(rows);
  for (int64_t rows : p.c_parts) text += " c:" + std::to_string(rows);
  return text;
}

// A problem with its numbers. The parts of a stack are in one buffer in reverse order, so that none
// can be reached by walking on from the one before.
struct Data {
  Problem p;
  Matrix a, b, c, bias;

  explicit Data(const Problem& problem)
      : p(problem),
        a(p.dtype, p.a_transposed ? p.K : p.M, p.a_transposed ? p.M : p.K, p.pad),
        b(p.dtype, p.b_transposed ? p.N : p.K, p.b_transposed ? p.K : p.N, p.pad),
        c(p.c_dtype, p.M, p.N, p.pad),
        bias(p.dtype, 1, p.N, 0) {
    std::mt19937 random(7);
    a.fill(random);
    b.fill(random);
    bias.fill(random);
    if (p.accumulate) c.fill(random);
  }

  static Stack reversed(Matrix& matrix, const std::vector<int64_t>& parts) {
    Stack stack{};
    stack.ld = matrix.ld;
    stack.count = parts.empty() ? 1 : static_cast<int>(parts.size());
    int64_t end = matrix.rows;
    for (int i = 0; i < stack.count; ++i) {
      stack.rows[i] = parts.empty() ? matrix.rows : parts[static_cast<size_t>(i)];
      stack.part[i] = matrix.row(end -= stack.rows[i]);
    }
    return stack;
  }
  // Row of the buffer that holds row i of the stack.
  static int64_t place(const Matrix& matrix, const std::vector<int64_t>& parts, int64_t i) {
    int64_t end = matrix.rows;
    for (int64_t rows : parts) {
      if (i < rows) return end - rows + i;
      i -= rows;
      end -= rows;
    }
    return i;
  }

  GemmArgs args() {
    GemmArgs g{};
    g.M = p.M, g.N = p.N, g.K = p.K, g.dtype = p.dtype, g.c_dtype = p.c_dtype;
    g.a = a.bytes.data(), g.lda = a.ld, g.a_transposed = p.a_transposed;
    g.b = reversed(b, p.b_parts), g.b_transposed = p.b_transposed;
    g.c = reversed(c, p.c_parts), g.accumulate = p.accumulate;
    int64_t n = 0;
    for (int i = 0; p.bias && i < g.b.count; n += g.b.rows[i++]) {
      g.bias[i] = bias.bytes.data() + n * dtype_bytes(p.dtype);
    }
    return g;
  }
  double a_at(int64_t m, int64_t k) const { return p.a_transposed ? a.get(k, m) : a.get(m, k); }
  double b_at(int64_t k, int64_t n) const {
    return p.b_transposed ? b.get(place(b, p.b_parts, n), k) : b.get(place(b, p.b_parts, k), n);
  }
  float c_at(int64_t m, int64_t n) const { return c.get(place(c, p.c_parts, m), n); }
};

void run_in(const Kernels& kernels, const GemmArgs& args, int num_threads, size_t bytes) {
  ThreadPool pool(num_threads);
  TestVector<std::byte> workspace(bytes + 64);
  std::memset(workspace.data(), 0xff, bytes + 64);  // NaN: nothing may be read before it is written
  kernels.gemm(Context{&pool, workspace.data(), bytes, gpu_stream()}, args);
  for (size_t i = 0; i < 64; ++i) {
    ASSERT_EQ(workspace[bytes + i], std::byte{0xff}) << "wrote past the workspace";
  }
}

void run(const Kernels& kernels, const GemmArgs& args, int num_threads) {
  run_in(kernels, args, num_threads, kernels.gemm_workspace(args, num_threads));
}

const Kernels* tested_gpu() {
  for (const Kernels* kernels : tested_kernels()) {
    if (std::string(kernels->name) == "cuda") return kernels;
  }
  return nullptr;
}

// The GPU's product with its algorithms chosen this way. Its measurements are not stored for
// others.
template <GemmChoice kChoice>
const Kernels* gpu_choosing(const char* name) {
  static const Kernels table = [=] {
    setenv("XDG_CACHE_HOME", ::testing::TempDir().c_str(), 1);
    Kernels t = *tested_gpu();
    t.name = name;
    t.gemm = [](const Context& context, const GemmArgs& args) {
      set_gemm_choice(kChoice);
      tested_gpu()->gemm(context, args);
    };
    return t;
  }();
  return &table;
}

// Those whose elements have the same bits in every cut.
std::vector<const Kernels*> exact_levels() {
  std::vector<const Kernels*> found;
  for (const char* name : {"neon", "neon_bf16", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (const Kernels* kernels = find_kernels(name)) found.push_back(kernels);
  }
  found.push_back(&planned_kernels());
  if (tested_gpu()) found.push_back(gpu_choosing<GemmChoice::kExact>("cuda_exact"));
  return found;
}

std::vector<const Kernels*> levels() {
  std::vector<const Kernels*> found = exact_levels();
  if (tested_gpu()) found.push_back(gpu_choosing<GemmChoice::kFast>("cuda_fast"));
  return found;
}

class GemmTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void expect_close(const Problem& problem, int num_threads = 2) {
    SCOPED_TRACE(describe(problem));
    const Data old(problem);
    Data data(problem);
    run(*GetParam(), data.args(), num_threads);
    // Large results are sampled: every row, every 13th column with a moving offset.
    const int64_t step = problem.M * problem.N * problem.K > (1 << 24) ? 13 : 1;
    for (int64_t m = 0; m < problem.M; ++m) {
      for (int64_t n = m % step; n < problem.N; n += step) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < problem.K; ++k) {
          const double addend = old.a_at(m, k) * old.b_at(k, n);
          want += addend;
          size += std::abs(addend);
        }
        const double product = want;
        if (problem.bias) want += old.bias.get(0, n), size += 1;
        if (problem.accumulate) want += old.c_at(m, n), size += 1;
        // Rounding errors of a chain grow like its root; eight units of the sum of sizes hold
        // them for every K here. One more rounding to 8 bits where C is bf16, to 11 where it is
        // fp16 (or to 2^-25 at least).
        double rounding = 0;
        if (problem.c_dtype == Dtype::kBf16) rounding = 0x1p-8 * std::abs(want);
        if (problem.c_dtype == Dtype::kF16) rounding = 0x1p-11 * std::abs(want) + 0x1p-25;
        // In fast mode the library may round the product before it adds a bias of 16 bits.
        if (problem.bias && std::string_view(GetParam()->name) == "cuda_fast") {
          if (problem.c_dtype == Dtype::kBf16) rounding += 0x1p-8 * std::abs(product);
          if (problem.c_dtype == Dtype::kF16) rounding += 0x1p-11 * std::abs(product);
        }
        ASSERT_NEAR(data.c_at(m, n), want, 8 * 0x1p-24 * size + rounding) << m << ", " << n;
      }
    }
    for (int64_t i = 0; i < data.c.rows; ++i) {
      for (int64_t j = data.c.cols; j < data.c.ld; ++j) ASSERT_TRUE(std::isnan(data.c.get(i, j)));
    }
  }
};

class GemmBitsTest : public ::testing::TestWithParam<const Kernels*> {};

const Dtype kDtypes[][2] = {
    {Dtype::kF32, Dtype::kF32}, {Dtype::kBf16, Dtype::kBf16}, {Dtype::kBf16, Dtype::kF32}};

// fp16 is for GPUs: the plan of a GPU's products, and a GPU where there is one.
class GemmHalfTest : public GemmTest {};

std::vector<const Kernels*> gpu_levels() {
  std::vector<const Kernels*> found = levels();
  std::erase_if(found,
                [](const Kernels* kernels) { return find_kernels(kernels->name) != nullptr; });
  return found;
}

TEST_P(GemmHalfTest, EveryTransposition) {
  const int64_t shapes[][3] = {{2, 3, 5}, {17, 25, 31}, {64, 40, 100}};
  for (const Dtype c_dtype : {Dtype::kF16, Dtype::kF32}) {
    for (const auto& [M, N, K] : shapes) {
      for (int bits = 0; bits < 16; ++bits) {
        expect_close({.M = M,
                      .N = N,
                      .K = K,
                      .dtype = Dtype::kF16,
                      .c_dtype = c_dtype,
                      .a_transposed = (bits & 1) != 0,
                      .b_transposed = (bits & 2) != 0,
                      .accumulate = (bits & 4) != 0,
                      .bias = (bits & 8) != 0});
      }
    }
  }
}

TEST_P(GemmTest, OddShapesInEveryTransposition) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 5, 0},    {2, 3, 5},     {7, 11, 3},
                               {8, 12, 4},   {9, 13, 33},  {17, 25, 31},  {33, 70, 64},
                               {64, 1, 100}, {1, 64, 100}, {61, 67, 129}, {100, 36, 1100}};
  for (const auto& [dtype, c_dtype] : kDtypes) {
    for (const auto& [M, N, K] : shapes) {
      for (int bits = 0; bits < 8; ++bits) {
        expect_close({.M = M,
                      .N = N,
                      .K = K,
                      .dtype = dtype,
                      .c_dtype = c_dtype,
                      .a_transposed = (bits & 1) != 0,
                      .b_transposed = (bits & 2) != 0,
                      .accumulate = (bits & 4) != 0});
      }
    }
  }
}

TEST_P(GemmTest, SeveralBlocks) {
  for (const auto& [dtype, c_dtype] : kDtypes) {
    for (bool accumulate : {false, true}) {
      expect_close({.M = 530,
                    .N = 50,
                    .K = 1500,
                    .dtype = dtype,
                    .c_dtype = c_dtype,
                    .a_transposed = accumulate,
                    .accumulate = accumulate});
      expect_close({.M = 20,
                    .N = 1500,
                    .K = 1111,
                    .dtype = dtype,
                    .c_dtype = c_dtype,
                    .b_transposed = true,
                    .accumulate = accumulate});
    }
  }
  expect_close({.M = 5, .N = 20000, .K = 70, .b_transposed = true});
  expect_close({.M = 2500, .N = 520, .K = 520, .accumulate = true});
}

TEST_P(GemmTest, StacksWithPartsOfAnySize) {
  const std::vector<std::vector<int64_t>> cuts = {
      {41, 13, 7}, {1, 59, 1}, {60, 1}, {3, 58}, {0, 61}};
  for (const auto& [dtype, c_dtype] : kDtypes) {
    for (const std::vector<int64_t>& parts : cuts) {
      for (const int64_t K : {37, 48}) {
        expect_close({.M = 19,
                      .N = 61,
                      .K = K,
                      .dtype = dtype,
                      .c_dtype = c_dtype,
                      .b_transposed = true,
                      .bias = true,
                      .b_parts = parts});
      }
      expect_close(
          {.M = 19, .N = 37, .K = 61, .dtype = dtype, .c_dtype = c_dtype, .b_parts = parts});
      expect_close({.M = 61,
                    .N = 37,
                    .K = 29,
                    .dtype = dtype,
                    .c_dtype = c_dtype,
                    .a_transposed = true,
                    .accumulate = true,
                    .c_parts = parts});
    }
  }
}

// One result in full; then the same elements computed otherwise.
TEST_P(GemmBitsTest, DependOnlyOnTheElement) {
  for (const auto& types : kDtypes) {
    const Dtype dtype = types[0], c_dtype = types[1];
    for (int bits = 0; bits < 16; ++bits) {
      const Problem whole{.M = 70,
                          .N = 90,
                          .K = (bits & 8) != 0 ? 1200 : 1201,  // with whole steps, and without
                          .dtype = dtype,
                          .c_dtype = c_dtype,
                          .a_transposed = (bits & 1) != 0,
                          .b_transposed = (bits & 2) != 0,
                          .accumulate = (bits & 4) != 0};
      SCOPED_TRACE(describe(whole));
      Data full(whole);
      run(*GetParam(), full.args(), 1);
      for (int threads : {2, 3}) {
        Data again(whole);
        run(*GetParam(), again.args(), threads);
        ASSERT_EQ(std::memcmp(again.c.bytes.data(), full.c.bytes.data(), full.c.bytes.size()), 0);
      }
      const auto cut = [&](int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
        Data part(whole);
        GemmArgs args = part.args();
        const int64_t size = dtype_bytes(dtype);
        const auto shift = [&](const void* at, int64_t elements) {
          return const_cast<std::byte*>(static_cast<const std::byte*>(at) + elements * size);
        };
        args.M = rows;
        args.N = cols;
        args.a = shift(args.a, whole.a_transposed ? m0 : m0 * args.lda);
        args.b.part[0] = shift(args.b.part[0], whole.b_transposed ? n0 * args.b.ld : n0);
        if (whole.b_transposed) args.b.rows[0] = cols;
        args.c.part[0] = static_cast<std::byte*>(part.c.row(m0)) + n0 * dtype_bytes(c_dtype);
        args.c.rows[0] = rows;
        run(*GetParam(), args, 2);
        for (int64_t m = m0; m < m0 + rows; ++m) {
          for (int64_t n = n0; n < n0 + cols; ++n) {
            ASSERT_EQ(part.c_at(m, n), full.c_at(m, n)) << m << ", " << n;
          }
        }
      };
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16, 17, 21, 32, 33}) cut(0, rows, 0, 90);
      cut(13, 57, 0, 90);
      cut(0, 70, 31, 1);
      cut(0, 70, 5, 83);
      cut(69, 1, 89, 1);
    }
  }
}

TEST_P(GemmBitsTest, DoNotDependOnTheCutOfAStack) {
  for (const auto& [dtype, c_dtype] : kDtypes) {
    for (bool b_transposed : {false, true}) {
      Problem p{.M = 33,
                .N = 75,
                .K = 75,
                .dtype = dtype,
                .c_dtype = c_dtype,
                .b_transposed = b_transposed};
      Data one(p);
      run(*GetParam(), one.args(), 2);
      for (const std::vector<int64_t>& parts :
           std::vector<std::vector<int64_t>>{{75}, {1, 70, 4}, {24, 51}, {37, 37, 1}}) {
        p.b_parts = parts;
        Data cut(p);
        for (int64_t i = 0; i < one.b.rows; ++i) {
          for (int64_t j = 0; j < one.b.cols; ++j) {
            cut.b.set(Data::place(cut.b, parts, i), j, one.b.get(i, j));
          }
        }
        run(*GetParam(), cut.args(), 2);
        ASSERT_EQ(std::memcmp(cut.c.bytes.data(), one.c.bytes.data(), one.c.bytes.size()), 0);
      }
    }
  }
}

// Negative control of the tests above: another order of k yields other bits.
TEST_P(GemmBitsTest, DependOnTheOrderOfK) {
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    const Problem p{.M = 40, .N = 40, .K = 500, .dtype = dtype};
    Data forward(p), backward(p);
    for (int64_t k = 0; k < p.K; ++k) {
      for (int64_t i = 0; i < 40; ++i) {
        backward.a.set(i, k, forward.a.get(i, p.K - 1 - k));
        backward.b.set(k, i, forward.b.get(p.K - 1 - k, i));
      }
    }
    run(*GetParam(), forward.args(), 1);
    run(*GetParam(), backward.args(), 1);
    EXPECT_NE(std::memcmp(forward.c.bytes.data(), backward.c.bytes.data(), forward.c.bytes.size()),
              0);
  }
}

// A row of infinities or NaN stays in its row.
TEST_P(GemmTest, NonFiniteRowsStayAlone) {
  for (const auto& [dtype, c_dtype] : kDtypes) {
    const Problem p{.M = 21, .N = 30, .K = 45, .dtype = dtype, .c_dtype = c_dtype};
    Data data(p);
    for (int64_t k = 0; k < p.K; ++k) data.a.set(20, k, std::numeric_limits<float>::infinity());
    run(*GetParam(), data.args(), 2);
    for (int64_t n = 0; n < p.N; ++n) {
      for (int64_t m = 0; m < 20; ++m) ASSERT_TRUE(std::isfinite(data.c_at(m, n)));
      ASSERT_FALSE(std::isfinite(data.c_at(20, n)));
    }
  }
}

// A caller allocates once, for its largest product: that suffices for every smaller one.
TEST_P(GemmTest, WorkspaceSufficesForSmallerProducts) {
  std::mt19937 random(5);
  const auto draw = [&](int64_t most) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (int i = 0; i < 60; ++i) {
    const auto& [dtype, c_dtype] = kDtypes[static_cast<size_t>(i) % std::size(kDtypes)];
    GemmArgs largest{};
    largest.dtype = dtype, largest.c_dtype = c_dtype;
    largest.M = draw(700), largest.N = draw(700), largest.K = draw(1400);
    const Problem p{draw(largest.M), draw(largest.N), draw(largest.K), dtype, c_dtype};
    Data small(p);
    SCOPED_TRACE(testing::Message() << describe(p) << " in the workspace of " << largest.M << " "
                                    << largest.N << " " << largest.K);
    for (int threads : {1, 2})
      run_in(*GetParam(), small.args(), threads, GetParam()->gemm_workspace(largest, 2));
  }
}

// The scratch memory must not grow with the matrices.
TEST_P(GemmTest, WorkspaceIsBounded) {
  const bool is_cpu = find_kernels(GetParam()->name) != nullptr;
  const size_t most = size_t{is_cpu ? 16u : 160u} << 20;
  for (const auto& [dtype, c_dtype] : kDtypes) {
    GemmArgs args{};
    args.dtype = dtype;
    args.c_dtype = c_dtype;
    for (int64_t M : {1, 256, 1 << 20}) {
      for (int64_t N : {1, 512, 1 << 17}) {
        for (int64_t K : {1, 512, 1 << 20}) {
          args.M = M, args.N = N, args.K = K;
          EXPECT_LE(GetParam()->gemm_workspace(args, 2), most) << M << " " << N << " " << K;
        }
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<const Kernels*>& param) {
  return param.param->name;
}
INSTANTIATE_TEST_SUITE_P(Levels, GemmTest, ::testing::ValuesIn(levels()), name_of);
INSTANTIATE_TEST_SUITE_P(Levels, GemmHalfTest, ::testing::ValuesIn(gpu_levels()), name_of);
INSTANTIATE_TEST_SUITE_P(Levels, GemmBitsTest, ::testing::ValuesIn(exact_levels()), name_of);

}  // namespace
}  // namespace weft
