// tests/kernel/gemm_standard_test.cpp: library or own kernel, decided with made-up libraries.
#include "kernel/gemm_standard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace weft {
// kernel/cuda/gemm_kernels.h, as the tests compile it.
namespace emulated {
void fill_test_operand(const Context& context, const TestOperand& operand);
}

namespace {

// An algorithm of a made-up library: its bits (as a family of orders), and where it runs.
struct Made {
  uint64_t bits = 0;
  std::function<bool(const LtProblem&)> runs = [](const LtProblem&) { return true; };
  std::function<bool(const LtProblem&)> is_offered = [](const LtProblem&) { return true; };
  bool rounds_twice = false;
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
    std::reverse(all.begin(), all.end());  // the library is wrong about their order
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
    const auto rounded = [&](float v) {
      return problem.d_dtype == Dtype::kBf16 ? to_float(to_bf16(v)) : v;
    };
    d->clear();
    for (int64_t j = 0; j < problem.n; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) {
        const auto error = static_cast<uint64_t>(i * 31 + j * 17) * (m.bits + 3) % 4099;
        float v = static_cast<float>(error) * 0x1p-24f;
        if (m.rounds_twice) v = rounded(v);
        if (problem.adds_c) v += test_addend(i, j);
        if (problem.has_bias) v += test_addend(i, 0);
        d->push_back(rounded(v));
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

  int num_timed = 0;

 private:
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

TEST(GemmStandard, TheFastestWhereAllAreAlike) {
  MadeLab lab({Made{}, Made{}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_EQ(standard.algorithms[0], MadeLab::algorithm(0));
  EXPECT_EQ(lab.num_timed, 0);
  EXPECT_EQ(found_exact(sized(1152, 8192), standard, nullptr, &lab), MadeLab::algorithm(1));
}

// The clock prefers another; bits decide. What was found before is tested again, and not timed.
TEST(GemmStandard, NoFasterOneWithOtherBits) {
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

// Candidates for few columns have other bits; the standard's algorithm is not offered, but runs.
TEST(GemmStandard, TheStandardServesWhereCandidatesDiffer) {
  MadeLab lab({Made{.bits = 0, .is_offered = is_large}, Made{.bits = 1, .runs = is_small}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  for (const auto& [m, n] : {std::pair{8, 1}, {1152, 1}, {8, 8192}, {640, 640}, {1152, 8190}}) {
    EXPECT_EQ(found_exact(sized(m, n), standard, nullptr, &lab), MadeLab::algorithm(0))
        << m << " " << n;
  }
}

// The first would be the standard, but does not run everywhere, nor does another have its bits.
TEST(GemmStandard, ACandidateThatDoesNotHoldMakesRoom) {
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

// What holds for large products alone is not taken for them: a cut would have other bits.
TEST(GemmStandard, OwnForAllWhereNothingHolds) {
  MadeLab lab({Made{.bits = 0, .runs = is_large}, Made{.bits = 1, .runs = is_small}});
  EXPECT_TRUE(find_standard(kKey, &lab).is_own());
  MadeLab bare({Made{.runs = [](const LtProblem& p) { return !p.has_bias; }}});
  EXPECT_TRUE(find_standard(kKey, &bare).is_own());
  MadeLab none({});
  EXPECT_TRUE(find_standard(kKey, &none).is_own());
}

// An epilogue that rounds the product before it adds.
TEST(GemmStandard, RoundingTwiceIsFound) {
  MadeLab lab({Made{.rounds_twice = true}});
  EXPECT_TRUE(find_standard(kKey, &lab).is_own());
}

TEST(GemmStandard, FewKAreTheOwnKernels) {
  EXPECT_TRUE(find_standard({kLeastLibraryK - 1, Dtype::kF32, false, false}, nullptr).is_own());
}

TEST(GemmStandard, NothingForAProblemThatIsRefused) {
  MadeLab lab({Made{.runs = [](const LtProblem& p) { return p.n != 8191; }}});
  const GemmStandard standard = find_standard(kKey, &lab);
  ASSERT_FALSE(standard.is_own());
  EXPECT_FALSE(find_exact(sized(1152, 8191), standard, nullptr, &lab));
}

// The test's operands: exact sums are 0, and the errors tell the order even when D is bf16.
TEST(GemmStandard, OperandsTellTheOrderOfTheSums) {
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

}  // namespace
}  // namespace weft
