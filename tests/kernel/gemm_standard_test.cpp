// tests/kernel/gemm_standard_test.cpp: library or built-in kernel, decided with fake libraries.
#include "kernel/gpu/gemm_standard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace weft {
// kernel/cuda/gemm_kernels.h, as the tests compile it.
namespace emulated {
void fill_test_operand(const Context& context, const TestOperand& operand);
void repeat(const Context& context, const RepeatCall& call);
void compare_repeated(const Context& context, const RepeatCall& call, int32_t* differs);
}  // namespace emulated

namespace {

// An algorithm of a fake library: its bits (as a family of orders), and where it runs.
struct Made {
  uint64_t bits = 0;
  std::function<bool(const LtProblem&)> runs = [](const LtProblem&) { return true; };
  std::function<bool(const LtProblem&)> is_offered = [](const LtProblem&) { return true; };
  bool rounds_twice = false;
  uint64_t large_bits = bits;  // of products larger than any test at the standard's size
};

class MadeLab : public GemmLab {
 public:
  explicit MadeLab(std::vector<Made> all) : all_(std::move(all)) {}

  std::vector<LtAlgorithm> candidates(const LtProblem& problem) override {
    std::vector<LtAlgorithm> found;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].runs(problem) && all_[i].is_offered(problem)) found.push_back(algorithm(i));
    }
    return found;
  }
  std::vector<LtAlgorithm> fastest_first(const LtProblem& problem, bool* was_measured) override {
    auto all = candidates(problem);
    *was_measured = true;
    std::reverse(all.begin(), all.end());  // the library predicts the wrong order
    ++num_timed;
    return all;
  }
  bool accepts(const LtProblem& problem, LtAlgorithm* algorithm) override {
    return made(*algorithm).runs(problem);
  }
  bool multiply(const LtProblem& problem, const LtAlgorithm& algorithm,
                std::vector<float>* d) override {
    const Made& m = made(algorithm);
    if (!m.runs(problem)) return false;
    d->clear();
    for (int64_t j = 0; j < problem.n; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) d->push_back(result(problem, m, i, j));
    }
    return true;
  }
  bool repeats(const LtProblem& problem, const LtAlgorithm& algorithm,
               const std::vector<float>& want) override {
    ++num_compared;
    const int64_t extent = standard_problem(key_of(problem)).m;
    EXPECT_EQ(want.size(), static_cast<size_t>(extent * extent));
    for (int64_t j = 0; j < problem.n; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) {
        const int64_t row = i % extent, column = j % extent;
        const float wanted = want[static_cast<size_t>(column * extent + row)];
        if (result(problem, made(algorithm), row, column) != wanted) return false;
      }
    }
    return true;
  }

  static LtAlgorithm algorithm(size_t i) {
    LtAlgorithm a;
    a.data[0] = i;
    return a;
  }
  const Made& made(const LtAlgorithm& algorithm) const { return all_[algorithm.data[0]]; }

  int num_timed = 0, num_compared = 0;

 private:
  static float result(const LtProblem& problem, const Made& m, int64_t i, int64_t j) {
    const auto rounded = [&](float v) {
      return problem.d_dtype == Dtype::kBf16 ? to_float(to_bf16(v)) : v;
    };
    const int64_t most = standard_problem(key_of(problem)).m;
    const uint64_t bits = problem.m > most || problem.n > most ? m.large_bits : m.bits;
    const auto error = static_cast<uint64_t>(i * 31 + j * 17) * (bits + 3) % 4099;
    float v = static_cast<float>(error) * 0x1p-24f;
    if (m.rounds_twice) v = rounded(v);
    if (problem.adds_c) v += test_addend(i, j);
    if (problem.has_bias) v += test_addend(i, 0);
    return rounded(v);
  }

  std::vector<Made> all_;
};

std::optional<LtAlgorithm> found_exact(const LtProblem& problem, const GemmStandard& standard,
                                       const LtAlgorithm* known, GemmLab* lab) {
  const auto choice = find_exact(problem, standard, known, lab);
  return choice ? std::optional(choice->algorithm) : std::nullopt;
}

constexpr GemmKey kKey{896, Dtype::kBf16, true, false};

LtProblem sized(int64_t m, int64_t n) {
  LtProblem p = standard_problem(kKey);
  p.m = m, p.n = n, p.d_dtype = Dtype::kBf16;
  return p;
}

bool is_small(const LtProblem& p) { return p.m < 64 || p.n < 64; }
bool is_large(const LtProblem& p) { return !is_small(p); }

TEST(GemmStandard, TheFastestWhereAllHaveTheSameBits) {
  MadeLab lab({Made{}, Made{}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_EQ(standard.algorithms[0], MadeLab::algorithm(0));
  EXPECT_EQ(lab.num_timed, 0);
  EXPECT_EQ(found_exact(sized(1152, 8192), standard, nullptr, &lab), MadeLab::algorithm(1));
}

// Timing prefers another; bits decide. A previous choice is tested again, but not timed.
TEST(GemmStandard, AFasterOneWithOtherBitsIsNotChosen) {
  MadeLab lab({Made{}, Made{}, Made{.bits = 1}});
  const GemmStandard standard = find_standard(kKey, &lab);
  const LtProblem problem = sized(1152, 8192);
  EXPECT_EQ(found_exact(problem, standard, nullptr, &lab), MadeLab::algorithm(1));
  EXPECT_EQ(lab.num_timed, 1);
  const LtAlgorithm right = MadeLab::algorithm(0), wrong = MadeLab::algorithm(2);
  EXPECT_FALSE(find_exact(problem, standard, &right, &lab)->was_measured);
  EXPECT_EQ(found_exact(problem, standard, &right, &lab), right);
  EXPECT_EQ(lab.num_timed, 1);
  EXPECT_EQ(found_exact(problem, standard, &wrong, &lab), MadeLab::algorithm(1));
  EXPECT_EQ(lab.num_timed, 2);
  EXPECT_TRUE(find_exact(problem, standard, &wrong, &lab)->was_measured);
}

// At the standard's size all have the same bits; at the product's own size one differs, and it is
// the fastest.
TEST(GemmStandard, AnOrderThatChangesWithTheSizeIsDetected) {
  MadeLab lab({Made{}, Made{}, Made{.large_bits = 1}});
  const GemmStandard standard = find_standard(kKey, &lab);
  EXPECT_EQ(lab.num_compared, 0);
  for (const auto& [m, n] : {std::pair{1152, 8192}, {1152, 8}, {8, 1153}}) {
    lab.num_compared = 0;
    EXPECT_EQ(found_exact(sized(m, n), standard, nullptr, &lab), MadeLab::algorithm(1));
    EXPECT_EQ(lab.num_compared, 2);
  }
  EXPECT_EQ(found_exact(sized(640, 640), standard, nullptr, &lab), MadeLab::algorithm(2));
}

// It was stored in a file: detected all the same, and measured again.
TEST(GemmStandard, AStoredChoiceIsComparedAtItsSize) {
  MadeLab lab({Made{}, Made{}, Made{.large_bits = 1}});
  const GemmStandard standard = find_standard(kKey, &lab);
  const LtProblem problem = sized(1152, 8192);
  const LtAlgorithm right = MadeLab::algorithm(0), wrong = MadeLab::algorithm(2);
  EXPECT_EQ(found_exact(problem, standard, &right, &lab), right);
  EXPECT_EQ(lab.num_compared, 1);
  EXPECT_EQ(lab.num_timed, 0);
  const auto choice = find_exact(problem, standard, &wrong, &lab);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, MadeLab::algorithm(1));
  EXPECT_TRUE(choice->was_measured);
}

TEST(GemmStandard, NoneWhereAllChangeWithTheSize) {
  MadeLab lab({Made{.large_bits = 1}, Made{.large_bits = 2}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_FALSE(find_exact(sized(1152, 8192), standard, nullptr, &lab));
}

// Addends are part of what must repeat.
TEST(GemmStandard, ACorrectOneIsChosenAfterOneComparison) {
  for (const int what : {0, 1, 2, 3}) {
    MadeLab lab({Made{}});
    const GemmStandard standard = find_standard(kKey, &lab);
    LtProblem problem = sized(1152, 700);
    problem.adds_c = what == 1 || what == 2;
    problem.c_is_d = what != 2;
    problem.has_bias = what == 3;
    if (problem.adds_c) problem.d_dtype = Dtype::kF32;
    EXPECT_TRUE(find_exact(problem, standard, nullptr, &lab)) << what;
    EXPECT_EQ(lab.num_compared, 1) << what;
  }
}

// Candidates for few columns have other bits; the standard's algorithm is not offered, but runs.
TEST(GemmStandard, TheStandardIsUsedWhereCandidatesDiffer) {
  MadeLab lab({Made{.bits = 0, .is_offered = is_large}, Made{.bits = 1, .runs = is_small}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  for (const auto& [m, n] : {std::pair{8, 1}, {1152, 1}, {8, 8192}, {640, 640}, {1152, 8190}}) {
    EXPECT_EQ(found_exact(sized(m, n), standard, nullptr, &lab), MadeLab::algorithm(0))
        << m << " " << n;
  }
}

// The first would be the standard, but does not run everywhere, nor does another have its bits.
TEST(GemmStandard, AFailingCandidateIsReplaced) {
  MadeLab lab(
      {Made{.bits = 0, .runs = is_large}, Made{.bits = 0, .runs = is_large}, Made{.bits = 1}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_EQ(standard.algorithms[0], MadeLab::algorithm(2));
  for (const auto& [m, n] : {std::pair{8, 1}, {1152, 8192}}) {
    const auto found = find_exact(sized(m, n), standard, nullptr, &lab);
    ASSERT_TRUE(found) << m << " " << n;
    EXPECT_EQ(lab.made(found->algorithm).bits, 1u);
  }
}

// What works only for large products is not used for them: a cut would have other bits.
TEST(GemmStandard, BuiltInForAllWhereNothingWorks) {
  MadeLab lab({Made{.bits = 0, .runs = is_large}, Made{.bits = 1, .runs = is_small}});
  EXPECT_TRUE(find_standard(kKey, &lab).is_own());
  MadeLab bare({Made{.runs = [](const LtProblem& p) { return !p.has_bias; }}});
  EXPECT_TRUE(find_standard(kKey, &bare).is_own());
  MadeLab none({});
  EXPECT_TRUE(find_standard(kKey, &none).is_own());
}

// An epilogue that rounds the product before it adds.
TEST(GemmStandard, RoundingTwiceIsDetected) {
  MadeLab lab({Made{.rounds_twice = true}});
  EXPECT_TRUE(find_standard(kKey, &lab).is_own());
}

TEST(GemmStandard, SmallKUsesTheBuiltInKernel) {
  EXPECT_TRUE(find_standard({kLeastLibraryK - 1, Dtype::kF32, false, false}, nullptr).is_own());
}

TEST(GemmStandard, NoneForARejectedProblem) {
  MadeLab lab({Made{.runs = [](const LtProblem& p) { return p.n != 8191; }}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_FALSE(find_exact(sized(1152, 8191), standard, nullptr, &lab));
}

// The test's operands: exact sums are 0, and the errors reveal the order even when D is bf16. A
// halved trial needs less memory for any layout of its operands.
TEST(GemmStandard, HalvesNeedLessMemory) {
  for (int bits = 0; bits < 16; ++bits) {
    LtProblem p;
    p.m = 151936, p.n = 8192, p.k = 896;
    p.a_transposed = (bits & 1) != 0, p.b_transposed = (bits & 2) != 0;
    p.adds_c = (bits & 4) != 0, p.c_is_d = (bits & 8) != 0;
    p.lda = p.a_transposed ? p.k : p.m, p.ldb = p.b_transposed ? p.n : p.k;
    p.ldc = p.ldd = p.m;
    const auto elements = [](const LtProblem& q) {  // of A, B and C
      return q.lda * (q.a_transposed ? q.m : q.k) + q.ldb * (q.b_transposed ? q.k : q.n) +
             (q.adds_c ? q.ldc * q.n : 0);
    };
    const LtProblem wide = halved(p);
    EXPECT_EQ(wide.m, 75968) << bits;
    EXPECT_EQ(wide.n, 8192) << bits;
    EXPECT_EQ(wide.k, 896) << bits;
    LtProblem last = p;
    while (std::max(last.m, last.n) > 640) {
      const LtProblem next = halved(last);
      EXPECT_LT(elements(next), elements(last)) << bits << " at " << last.m << " " << last.n;
      EXPECT_GE(next.lda, next.a_transposed ? next.k : next.m) << bits;
      EXPECT_GE(next.ldb, next.b_transposed ? next.n : next.k) << bits;
      EXPECT_GE(std::min(next.ldc, next.ldd), next.m) << bits;
      if (next.adds_c && next.c_is_d) {
        EXPECT_EQ(next.ldc, next.ldd) << bits;
      }
      last = next;
    }
    EXPECT_LT(elements(last), elements(p) / 10) << bits;
  }
}

TEST(GemmStandard, OperandsRevealTheOrderOfTheSums) {
  constexpr int64_t kLines = 16, kK = 101, kLd = 104;
  for (const bool k_is_inner : {true, false}) {
    std::vector<float> a(kLines * kLd), b(kLines * kLd);
    const int64_t ld = k_is_inner ? kLd : kLines;
    emulated::fill_test_operand({}, {a.data(), Dtype::kF32, kLines, kK, ld, k_is_inner, false, 1});
    emulated::fill_test_operand({}, {b.data(), Dtype::kF32, kLines, kK, ld, k_is_inner, true, 2});
    const auto at = [&](const std::vector<float>& x, int64_t line, int64_t k) {
      return x[static_cast<size_t>(k_is_inner ? line * ld + k : k * ld + line)];
    };
    int others = 0;
    for (int64_t i = 0; i < kLines; ++i) {
      for (int64_t j = 0; j < kLines; ++j) {
        float forward = 0, by_two[2] = {};
        double exact = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const float product = at(a, i, k) * at(b, j, k);
          exact += product;
          forward += product;
          by_two[k % 2] += product;
        }
        ASSERT_NEAR(exact, 0, 1e-12);
        const float both = by_two[0] + by_two[1];
        others += to_float(to_bf16(forward)) != to_float(to_bf16(both));
      }
    }
    EXPECT_GT(others, kLines * kLines / 2);
  }
}

// A product of operands that repeat those of a smaller one repeats its result, to the last bit, and
// the smallest error is detected anywhere.
TEST(GemmStandard, RepeatedOperandsRepeatTheProduct) {
  constexpr int64_t kLines = 16, kK = 37, kM = 40, kN = 23;
  // Lines of k numbers each; k runs fastest in a, lines do in b.
  std::vector<float> a(kLines * kK), b(kK * kLines), wide_a(kM * kK, 7), wide_b(kK * (kN + 1), 7);
  emulated::fill_test_operand({}, {a.data(), Dtype::kF32, kLines, kK, kK, true, false, 1});
  emulated::fill_test_operand({}, {b.data(), Dtype::kF32, kLines, kK, kLines, false, true, 2});
  emulated::repeat({}, {a.data(), kK, kLines, kK, wide_a.data(), kK, kM, kK, Dtype::kF32});
  emulated::repeat({}, {b.data(), kLines, kK, kLines, wide_b.data(), kN, kK, kN + 1, Dtype::kF32});
  EXPECT_EQ(wide_b[kN], 7);  // outside the matrix
  const auto product = [](const std::vector<float>& left, const std::vector<float>& right,
                          int64_t m, int64_t n, int64_t ld) {
    std::vector<float> d;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (int64_t k = 0; k < kK; ++k) {
          sum += left[static_cast<size_t>(i * kK + k)] * right[static_cast<size_t>(k * ld + j)];
        }
        d.push_back(sum);
      }
    }
    return d;
  };
  const std::vector<float> want = product(a, b, kLines, kLines, kLines);
  const std::vector<float> whole = product(wide_a, wide_b, kM, kN, kN + 1);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    std::vector<float> rounded = want, d(whole.size());
    for (float& v : rounded) {
      store_element(&v, dtype, 0, v);
      v = load_element(&v, dtype, 0);
    }
    const auto put = [&](size_t at, float v) {
      store_element(d.data(), dtype, static_cast<int64_t>(at), v);
    };
    for (size_t at = 0; at < whole.size(); ++at) put(at, whole[at]);
    const auto differs = [&] {
      int32_t found = 0;
      const RepeatCall call{rounded.data(), kLines, kLines, kLines, d.data(), kM, kN, kM, dtype};
      emulated::compare_repeated({}, call, &found);
      return found != 0;
    };
    EXPECT_FALSE(differs());
    for (const size_t at : {size_t{0}, size_t{17 * kM + 3}, whole.size() - 1}) {
      put(at, whole[at] + 0x1p-20f);
      EXPECT_TRUE(differs()) << at;
      put(at, std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(differs()) << at;
      put(at, whole[at]);
    }
    EXPECT_FALSE(differs());
  }
}

}  // namespace
}  // namespace weft
