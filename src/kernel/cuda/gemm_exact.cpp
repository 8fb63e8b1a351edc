// kernel/cuda/gemm_exact.cpp: an algorithm by its bits.
//
// In exact mode an element must not depend on how M and N were cut. What it must be is told by a
// product of fixed size, the standard: same k, types and transpositions, as many rows and columns
// as K alone decides, fp32 result, the library's first candidate that does not cut the chain over
// k. A candidate for the real product is taken if on random numbers it has the standard's bits (in
// its own type) at up to the standard's size, and at half of it in either direction. Which
// candidates there are depends on M and N; which bits are right does not.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/round_up.h"
#include "kernel/cuda/gemm_choose.h"
#include "kernel/cuda/gemm_kernels.h"
#include "tensor/cuda/check.h"

namespace weft::cuda {
namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kMostExtent = 640, kLeastExtent = 128;
constexpr int64_t kMostOperandBytes = int64_t{64} << 20;

// Rows and columns of the standard.
int64_t standard_extent(int64_t k, Dtype dtype) {
  const int64_t rows = kMostOperandBytes / (round_up(k, kTile) * dtype_bytes(dtype));
  return std::clamp(rows / kTile * kTile, kLeastExtent, kMostExtent);
}

// An extent of the test: the whole, or `most` with the same ragged end.
int64_t test_extent(int64_t whole, int64_t most) {
  return whole <= most ? whole : most - (kTile - whole % kTile) % kTile;
}

class SelfTest {
 public:
  explicit SelfTest(const GemmTrial& trial)
      : trial_(trial),
        real_(trial.call.problem),
        extent_(standard_extent(real_.k, real_.dtype)),
        long_ld_(round_up(real_.k, kTile)),
        a_(operand_bytes()),
        b_(operand_bytes()),
        c_(extent_ * extent_ * 4),
        d_(extent_ * extent_ * 4),
        bias_(extent_ * 4) {
    for (const TrialMemory* memory : {&a_, &b_, &c_, &d_, &bias_}) {
      if (!memory->get()) throw RunError("no memory of the GPU is left to test a product's bits");
    }
    const Context context{nullptr, nullptr, 0, trial.stream};
    const int64_t elements = extent_ * long_ld_;
    fill_random(context, a_.get(), real_.dtype, elements, 1);
    fill_random(context, b_.get(), real_.dtype, elements, 2);
    clear(c_, 0);
    check(cudaMemsetAsync(bias_.get(), 0, static_cast<size_t>(extent_ * 4), stream()), "memset");
  }

  // The standard's algorithm; its bits are kept.
  LtAlgorithm make_standard() {
    LtCall call = small(extent_, extent_);
    call.problem.adds_c = call.problem.has_bias = false;
    call.problem.c_is_d = true;
    call.problem.d_dtype = Dtype::kF32;
    call.c = call.d;
    call.bias = nullptr;
    const LtPrepared prepared = prepare(call.problem);
    for (const LtAlgorithm& candidate :
         find_candidates(trial_.lt, call, prepared, false, kMostCandidates)) {
      if (!run(call, prepared, candidate)) continue;
      standard_.resize(static_cast<size_t>(extent_ * extent_));
      read(standard_.data(), extent_ * extent_ * 4);
      return candidate;
    }
    throw RunError("cuBLASLt has no algorithm for " + weft::describe(call.problem));
  }

  bool passes(const LtAlgorithm& algorithm) {
    const int64_t m = test_extent(real_.m, extent_), n = test_extent(real_.n, extent_);
    return has_standard_bits(algorithm, m, n) && has_standard_bits(algorithm, (m + 1) / 2, n) &&
           has_standard_bits(algorithm, m, (n + 1) / 2);
  }

 private:
  int64_t operand_bytes() const { return extent_ * long_ld_ * dtype_bytes(real_.dtype); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(trial_.stream); }

  void clear(const TrialMemory& memory, int byte) {
    check(cudaMemsetAsync(memory.get(), byte, static_cast<size_t>(extent_ * extent_ * 4), stream()),
          "cudaMemsetAsync");
  }

  // The real call with the test's operands; C and bias are zeros.
  LtCall small(int64_t m, int64_t n) const {
    LtCall call;
    call.problem = real_;
    call.problem.m = m;
    call.problem.n = n;
    call.problem.lda = real_.a_transposed ? long_ld_ : extent_;
    call.problem.ldb = real_.b_transposed ? extent_ : long_ld_;
    call.problem.ldc = call.problem.ldd = extent_;
    call.problem.alignment = 256;
    call.a = a_.get();
    call.b = b_.get();
    call.d = d_.get();
    call.c = real_.c_is_d ? d_.get() : c_.get();
    call.bias = real_.has_bias ? bias_.get() : nullptr;
    return call;
  }

  bool run(const LtCall& call, const LtPrepared& prepared, const LtAlgorithm& algorithm) {
    const bool reads_d = call.problem.adds_c && call.problem.c_is_d;
    clear(d_, reads_d ? 0 : 0xff);
    return try_multiply(trial_.lt, call, prepared, algorithm, trial_.workspace, trial_.stream);
  }

  void read(void* to, int64_t bytes) {
    check(
        cudaMemcpyAsync(to, d_.get(), static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream()),
        "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream()), "the self-test of a product");
  }

  bool has_standard_bits(const LtAlgorithm& algorithm, int64_t m, int64_t n) {
    const LtCall call = small(m, n);
    const LtPrepared prepared = prepare(call.problem);
    if (!run(call, prepared, algorithm)) return false;
    const Dtype dtype = real_.d_dtype;
    got_.resize(static_cast<size_t>(extent_ * extent_ * dtype_bytes(dtype)));
    read(got_.data(), static_cast<int64_t>(got_.size()));
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        const int64_t at = j * extent_ + i;
        const float exact = standard_[static_cast<size_t>(at)];
        const float want = dtype == Dtype::kBf16 ? to_float(to_bf16(exact)) : exact;
        // As numbers: a zero that was added may have turned -0 into 0.
        if (!(load_element(got_.data(), dtype, at) == want)) return false;
      }
    }
    return true;
  }

  const GemmTrial& trial_;
  const LtProblem& real_;
  int64_t extent_, long_ld_;
  TrialMemory a_, b_, c_, d_, bias_;
  std::vector<float> standard_;
  std::vector<std::byte> got_;
};

}  // namespace

LtAlgorithm choose_exact(const GemmTrial& trial) {
  SelfTest test(trial);
  LtAlgorithm standard = test.make_standard();
  for (const LtAlgorithm& candidate :
       find_candidates(trial.lt, trial.call, trial.prepared, false, kMostCandidates)) {
    if (test.passes(candidate)) return candidate;
  }
  // Slower than a candidate would be, but with its own bits.
  if (accepts(trial.lt, trial.prepared, &standard) && test.passes(standard)) return standard;
  throw RunError("no algorithm of cuBLASLt has the same bits in every cut of " +
                     weft::describe(trial.call.problem),
                 "parallel.mode: fast has no need of it");
}

}  // namespace weft::cuda
