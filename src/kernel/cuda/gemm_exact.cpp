// kernel/cuda/gemm_exact.cpp: the lab in which exact mode tests the library's bits, on the GPU.
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "kernel/cuda/gemm_choose.h"
#include "kernel/cuda/gemm_kernels.h"
#include "tensor/cuda/check.h"

namespace weft::cuda {
namespace {

class DeviceLab : public GemmLab {
 public:
  explicit DeviceLab(const GemmTrial& trial)
      : standard_(standard_problem(key_of(trial.call.problem))),
        trial_(trial),
        lt_(trial.lt),
        workspace_(trial.workspace),
        stream_(static_cast<cudaStream_t>(trial.stream)),
        a_(operand_bytes(standard_.a_transposed, standard_.lda)),
        b_(operand_bytes(!standard_.b_transposed, standard_.ldb)),
        c_(result_bytes()),
        d_(result_bytes()),
        bias_(standard_.m * 4) {
    for (const TrialMemory* memory : {&a_, &b_, &c_, &d_, &bias_}) {
      if (!memory->get()) throw RunError("no memory of the GPU is left to test a product's bits");
    }
    const GemmKey key = key_of(trial.call.problem);
    const Context context{nullptr, nullptr, 0, trial.stream};
    TestOperand operand{a_.get(),      key.dtype,        standard_.m, key.k,
                        standard_.lda, key.a_transposed, false,       1};
    fill_test_operand(context, operand);
    operand = {b_.get(), key.dtype, standard_.n, key.k, standard_.ldb, !key.b_transposed, true, 2};
    fill_test_operand(context, operand);
  }

  std::vector<LtAlgorithm> candidates(const LtProblem& problem) override {
    return find_candidates(lt_, call_of(problem), prepare(problem), false, kMostCandidates);
  }

  std::vector<LtAlgorithm> fastest_first(const LtProblem& problem) override {
    ensure(problem == trial_.call.problem, "another product than the one that is tried");
    auto all = find_candidates(lt_, trial_.call, trial_.prepared, false, kMostCandidates);
    bool was_measured = false;
    return all.empty() ? all : rank_by_time(trial_, std::move(all), &was_measured);
  }

  bool accepts(const LtProblem& problem, LtAlgorithm* algorithm) override {
    return cuda::accepts(lt_, call_of(problem), prepare(problem), algorithm);
  }

  bool multiply(const LtProblem& problem, const LtAlgorithm& algorithm,
                std::vector<float>* d) override {
    const LtCall call = call_of(problem);
    check(cudaMemsetAsync(d_.get(), 0xff, static_cast<size_t>(result_bytes()), stream_), "memset");
    if (problem.adds_c) set_addends(problem, problem.c_is_d ? d_ : c_, problem.n);
    if (problem.has_bias) set_addends(problem, bias_, 1);
    if (!try_multiply(lt_, call, prepare(problem), algorithm, workspace_, stream_)) return false;
    host_.resize(static_cast<size_t>(problem.n * problem.ldd * dtype_bytes(problem.d_dtype)));
    check(cudaMemcpyAsync(host_.data(), d_.get(), host_.size(), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "the self-test of a product");
    d->resize(static_cast<size_t>(problem.m * problem.n));
    for (int64_t j = 0; j < problem.n; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) {
        (*d)[static_cast<size_t>(j * problem.m + i)] =
            load_element(host_.data(), problem.d_dtype, j * problem.ldd + i);
      }
    }
    return true;
  }

 private:
  int64_t operand_bytes(bool k_is_inner, int64_t ld) const {
    const int64_t columns = k_is_inner ? standard_.m : round_up(standard_.k, kExtentStep);
    return columns * ld * dtype_bytes(standard_.dtype);
  }
  int64_t result_bytes() const { return standard_.ldd * standard_.n * 4; }

  void set_addends(const LtProblem& problem, const TrialMemory& to, int64_t columns) {
    host_.resize(static_cast<size_t>(columns * problem.ldd * dtype_bytes(problem.d_dtype)));
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < problem.m; ++i) {
        store_element(host_.data(), problem.d_dtype, j * problem.ldd + i, test_addend(i, j));
      }
    }
    // From pageable memory: it is read when the call returns.
    check(cudaMemcpyAsync(to.get(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
  }

  LtCall call_of(const LtProblem& problem) const {
    LtCall call;
    call.problem = problem;
    call.a = a_.get();
    call.b = b_.get();
    call.d = d_.get();
    call.c = problem.c_is_d ? d_.get() : c_.get();
    call.bias = problem.has_bias ? bias_.get() : nullptr;
    return call;
  }

  LtProblem standard_;
  const GemmTrial& trial_;
  const Lt& lt_;
  std::byte* workspace_;
  cudaStream_t stream_;
  TrialMemory a_, b_, c_, d_, bias_;
  std::vector<std::byte> host_;
};

}  // namespace

std::unique_ptr<GemmLab> open_lab(const GemmTrial& trial) {
  return std::make_unique<DeviceLab>(trial);
}

}  // namespace weft::cuda
