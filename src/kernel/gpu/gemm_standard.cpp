// kernel/gpu/gemm_standard.cpp: compares candidates with a standard at many sizes.
#include "kernel/gpu/gemm_standard.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/round_up.h"

namespace weft {
namespace {

constexpr int64_t kTestTile = 64;
constexpr int64_t kMostTestExtent = 640, kLeastExtent = 128;
constexpr int64_t kMostOperandBytes = int64_t{64} << 20;

// An extent of the test: the whole, or `most` with the same ragged end.
int64_t test_extent(int64_t whole, int64_t most) {
  return whole <= most ? whole : most - (kTestTile - whole % kTestTile) % kTestTile;
}

// As a plan would have it (kExtentStep).
LtProblem with_extents(LtProblem p, int64_t m, int64_t n) {
  p.m = round_up(m, kExtentStep);
  p.n = p.b_transposed ? round_up(n, kExtentStep) : n;
  return p;
}

// The standard's product with all that a plan may add to it.
std::vector<LtProblem> epilogues(const LtProblem& standard) {
  std::vector<LtProblem> all = {standard};
  LtProblem p = standard;
  p.adds_c = true;
  all.push_back(p);
  p.c_is_d = false;
  all.push_back(p);
  p = standard;
  p.d_dtype = p.dtype;
  p.has_bias = true;
  all.push_back(p);
  if (p.dtype != Dtype::kF32) {
    p.has_bias = false;
    all.push_back(p);
  }
  return all;
}

class Bits {
 public:
  Bits(const GemmKey& key, GemmLab* lab) : standard_(standard_problem(key)), lab_(lab) {}

  [[nodiscard]] bool set_standard(const LtAlgorithm& algorithm) {
    return lab_->multiply(standard_, algorithm, &bits_);
  }
  const std::vector<float>& bits() const { return bits_; }

  // The problem's product at this size.
  bool has(const LtProblem& problem, const LtAlgorithm& algorithm) {
    if (!lab_->multiply(problem, algorithm, &got_)) return false;
    for (int64_t j = 0; j < problem.n; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) {
        // As numbers: a zero that was added may have turned -0 into 0.
        if (!(got_[static_cast<size_t>(j * problem.m + i)] == wanted(problem, i, j))) return false;
      }
    }
    return true;
  }

  // At the standard's size, with all that the problem adds.
  std::vector<float> all_wanted(const LtProblem& problem) const {
    std::vector<float> all;
    all.reserve(bits_.size());
    for (int64_t j = 0; j < standard_.n; ++j) {
      for (int64_t i = 0; i < standard_.m; ++i) all.push_back(wanted(problem, i, j));
    }
    return all;
  }

  // Whether at every size some algorithm has the bits; those found are added to the list.
  bool hold_everywhere(std::vector<LtAlgorithm>* algorithms) {
    const int64_t most = standard_.m;
    const std::array<std::array<int64_t, 2>, 10> sizes = {{{most, most},
                                                           {8, 1},
                                                           {8, most},
                                                           {most, 1},
                                                           {24, 17},
                                                           {40, 41},
                                                           {64, 100},
                                                           {104, 25},
                                                           {16, 64},
                                                           {most - 8, most - 3}}};
    for (const LtProblem& epilogue : epilogues(standard_)) {
      for (const auto& [m, n] : sizes) {
        if (!holds_at(with_extents(epilogue, m, n), algorithms)) return false;
      }
    }
    return true;
  }

 private:
  float wanted(const LtProblem& problem, int64_t i, int64_t j) const {
    float want = bits_[static_cast<size_t>(j * standard_.m + i)];
    if (problem.adds_c) want += test_addend(i, j);
    if (problem.has_bias) want += test_addend(i, 0);
    store_element(&want, problem.d_dtype, 0, want);
    return load_element(&want, problem.d_dtype, 0);
  }

  bool holds_at(const LtProblem& problem, std::vector<LtAlgorithm>* algorithms) {
    for (LtAlgorithm algorithm : *algorithms) {
      if (lab_->accepts(problem, &algorithm) && has(problem, algorithm)) return true;
    }
    for (const LtAlgorithm& candidate : lab_->candidates(problem)) {
      if (!has(problem, candidate)) continue;
      algorithms->push_back(candidate);
      return true;
    }
    return false;
  }

  LtProblem standard_;
  GemmLab* lab_;
  std::vector<float> bits_, got_;
};

}  // namespace

GemmKey key_of(const LtProblem& problem) {
  return {problem.k, problem.dtype, problem.a_transposed, problem.b_transposed};
}

LtProblem standard_problem(const GemmKey& key) {
  const int64_t long_ld = round_up(key.k, kTestTile);
  const int64_t lines = kMostOperandBytes / (long_ld * dtype_bytes(key.dtype));
  LtProblem p;
  p.m = p.n = p.ldc = p.ldd =
      std::clamp(lines / kTestTile * kTestTile, kLeastExtent, kMostTestExtent);
  p.k = key.k;
  p.a_transposed = key.a_transposed;
  p.b_transposed = key.b_transposed;
  p.lda = p.a_transposed ? long_ld : p.m;
  p.ldb = p.b_transposed ? p.n : long_ld;
  p.dtype = key.dtype;
  p.alignment = kOperandAlignment;  // what a plan promises at least
  return p;
}

float test_addend(int64_t i, int64_t j) {
  return static_cast<float>((i * 7 + j * 13) % 31 - 15) * 0x1p-20f;
}

GemmStandard find_standard(const GemmKey& key, GemmLab* lab) {
  if (key.k < kLeastLibraryK) return {};
  std::vector<std::vector<float>> failed;
  for (const LtAlgorithm& candidate : lab->candidates(standard_problem(key))) {
    Bits bits(key, lab);
    if (!bits.set_standard(candidate)) continue;
    if (std::find(failed.begin(), failed.end(), bits.bits()) != failed.end()) continue;
    GemmStandard standard{{candidate}};
    if (bits.hold_everywhere(&standard.algorithms)) return standard;
    failed.push_back(bits.bits());
  }
  return {};
}

LtProblem halved(const LtProblem& problem) {
  LtProblem p = problem;
  int64_t& longer = p.m > p.n ? p.m : p.n;
  longer = round_up(longer / 2, kExtentStep);
  if (!p.a_transposed) p.lda = round_up(p.m, kExtentStep);
  if (p.b_transposed) p.ldb = round_up(p.n, kExtentStep);
  if (p.adds_c) p.ldc = round_up(p.m, kExtentStep);
  if (p.adds_c && p.c_is_d) p.ldd = p.ldc;
  return p;
}

std::optional<ExactChoice> find_exact(const LtProblem& problem, const GemmStandard& standard,
                                      const LtAlgorithm* known, GemmLab* lab) {
  const GemmKey key = key_of(problem);
  Bits bits(key, lab);
  ensure(!standard.is_own() && bits.set_standard(standard.algorithms[0]),
         "the standard of a product cannot be reproduced");
  LtProblem test = standard_problem(key);
  test.adds_c = problem.adds_c;
  test.c_is_d = problem.c_is_d;
  test.has_bias = problem.has_bias;
  test.d_dtype = problem.d_dtype;
  const int64_t m = test_extent(problem.m, test.m), n = test_extent(problem.n, test.n);
  const std::vector<float> want = bits.all_wanted(problem);
  const auto passes = [&](const LtAlgorithm& algorithm) {
    return bits.has(with_extents(test, m, n), algorithm) &&
           bits.has(with_extents(test, (m + 1) / 2, n), algorithm) &&
           bits.has(with_extents(test, m, (n + 1) / 2), algorithm) &&
           lab->repeats(problem, algorithm, want);
  };
  const auto passes_here = [&](LtAlgorithm* algorithm) {
    return lab->accepts(problem, algorithm) && passes(*algorithm);
  };
  if (known) {
    LtAlgorithm algorithm = *known;
    if (passes_here(&algorithm)) return ExactChoice{algorithm};
  }
  bool was_measured = false;
  for (const LtAlgorithm& candidate : lab->fastest_first(problem, &was_measured)) {
    if (passes(candidate)) return ExactChoice{candidate, was_measured};
  }
  // Possibly slower than a candidate, but with the standard's bits.
  for (LtAlgorithm algorithm : standard.algorithms) {
    if (passes_here(&algorithm)) return ExactChoice{algorithm, was_measured};
  }
  return std::nullopt;
}

}  // namespace weft
