// kernel/gpu/gemm_standard.h: exact mode's choice between the library and the built-in kernel, and
// among the library's algorithms.
//
// In exact mode an element must not depend on how m and n were cut. So the decision uses only what
// no cut changes: k, the operands' dtype and the transpositions, a GemmKey. A key has a standard:
// the bits of a product of fixed size with one of the library's algorithms. The library handles the
// key if at a range of sizes, down to a single line, with every epilogue that a plan may use, it
// has some algorithm with the standard's bits; if a candidate fails as the standard, the next one
// is tried. If none works, or k is so small that the library gains nothing, the built-in kernel
// computes all products of the key, since its bits depend on nothing else. No timing and no file
// influences this, so all ranks decide alike. Timing may choose only among algorithms that have the
// standard's bits.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "kernel/gpu/gemm_choices.h"

namespace weft {

struct GemmKey {
  int64_t k = 0;
  Dtype dtype = Dtype::kF32;  // of A and B
  bool a_transposed = false, b_transposed = false;
  auto operator<=>(const GemmKey&) const = default;
};
GemmKey key_of(const LtProblem& problem);

// Products of smaller k use the built-in kernel: they are memory-bound, and this is where the
// library's candidates differ most.
inline constexpr int64_t kLeastLibraryK = 64;

// The standard's product: its extents, 128 to 640, depend only on k.
LtProblem standard_problem(const GemmKey& key);

// An operand of a self-test: `lines` lines of k numbers of [-1, 1), the same for the same seed. The
// second half of k repeats the first, or its negative (0 for a last odd one): the product of a
// negated and a plain operand is 0, so the result consists of rounding errors. They reveal the
// order of the sums, even when D is rounded to bf16.
struct TestOperand {
  void* to = nullptr;
  Dtype dtype = Dtype::kF32;
  int64_t lines = 0, k = 0, ld = 0;
  bool k_is_inner = false;  // k runs fastest in memory; else lines do
  bool is_negated = false;
  uint64_t seed = 0;
};

// to(i, j) = from(i mod from_rows, j mod from_columns), column-major.
struct RepeatCall {
  const void* from = nullptr;
  int64_t from_rows = 0, from_columns = 0, from_ld = 0;
  void* to = nullptr;
  int64_t rows = 0, columns = 0, ld = 0;
  Dtype dtype = Dtype::kF32;
};

// The library at the test's operands of one key. Products of the test are the first m rows of op(A)
// and the first n columns of op(B), with the standard's leading dimensions.
class GemmLab {
 public:
  virtual ~GemmLab() = default;
  // Without split k, in the library's order.
  virtual std::vector<LtAlgorithm> candidates(const LtProblem& problem) = 0;
  // The same for the real product, in the order of measured time; was_measured: false where they
  // could not be timed.
  virtual std::vector<LtAlgorithm> fastest_first(const LtProblem& problem, bool* was_measured) = 0;
  // Whether the library accepts this algorithm for this problem; sets its workspace.
  virtual bool accepts(const LtProblem& problem, LtAlgorithm* algorithm) = 0;
  // (*d)[j * m + i] = the product, C being test_addend(i, j) and the bias test_addend(i, 0). False
  // where the library rejects it.
  virtual bool multiply(const LtProblem& problem, const LtAlgorithm& algorithm,
                        std::vector<float>* d) = 0;
  // Whether the real product with this algorithm is `want` (of the standard's extents) tiled, as it
  // must be when its operands, C and bias are the test's tiled. Every element is compared; where
  // memory is short, only the largest part of the product that fits.
  virtual bool repeats(const LtProblem& problem, const LtAlgorithm& algorithm,
                       const std::vector<float>& want) = 0;
};
// A smaller product to test instead, in separate memory: the longer extent is halved, and operands
// (and C, where D is written to it) have rows no wider than needed.
LtProblem halved(const LtProblem& problem);
// As large as the rounding errors that are the test's results, and exact in bf16.
float test_addend(int64_t i, int64_t j);

struct GemmStandard {
  std::vector<LtAlgorithm> algorithms;  // that had the bits somewhere, the standard's own first
  bool is_own() const { return algorithms.empty(); }
};
// The lab, which may be null, is not used where k alone decides.
GemmStandard find_standard(const GemmKey& key, GemmLab* lab);

// The fastest algorithm with the standard's bits for this problem: tested at up to the standard's
// size with the problem's ragged ends, at half of it in either direction, and at the problem's own
// size. None where there is none. known: what was found before, or null; tested again, but not
// timed if it still passes.
struct ExactChoice {
  LtAlgorithm algorithm;
  bool was_measured = false;  // just now: worth storing
};
std::optional<ExactChoice> find_exact(const LtProblem& problem, const GemmStandard& standard,
                                      const LtAlgorithm* known, GemmLab* lab);

}  // namespace weft
