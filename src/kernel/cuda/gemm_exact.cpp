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
        addends_(result_bytes()),
        narrow_addends_(result_bytes()),
        d_(result_bytes()) {
    for (const TrialMemory* memory : {&a_, &b_, &addends_, &narrow_addends_, &d_}) {
      if (!memory->get()) throw RunError("no memory of the GPU is left to test a product's bits");
    }
    const GemmKey key = key_of(trial.call.problem);
    const Context context{nullptr, nullptr, 0, trial.stream};
    TestOperand operand{a_.get(),      key.dtype,        standard_.m, key.k,
                        standard_.lda, key.a_transposed, false,       1};
    fill_test_operand(context, operand);
    operand = {b_.get(), key.dtype, standard_.n, key.k, standard_.ldb, !key.b_transposed, true, 2};
    fill_test_operand(context, operand);
    set_addends(Dtype::kF32, addends_);
    set_addends(standard_.dtype, narrow_addends_);
  }

  std::vector<LtAlgorithm> candidates(const LtProblem& problem) override {
    return find_candidates(lt_, call_of(problem), prepare(problem), false, kMostCandidates);
  }

  std::vector<LtAlgorithm> fastest_first(const LtProblem& problem, bool* was_measured) override {
    ensure(problem == trial_.call.problem, "another product than the one that is tried");
    auto all = find_candidates(lt_, trial_.call, trial_.prepared, false, kMostCandidates);
    return all.empty() ? all : rank_by_time(trial_, std::move(all), was_measured);
  }

  bool accepts(const LtProblem& problem, LtAlgorithm* algorithm) override {
    return cuda::accepts(lt_, call_of(problem), prepare(problem), algorithm);
  }

  bool multiply(const LtProblem& problem, const LtAlgorithm& algorithm,
                std::vector<float>* d) override {
    const LtCall call = call_of(problem);
    check(cudaMemsetAsync(d_.get(), 0xff, static_cast<size_t>(result_bytes()), stream_), "memset");
    const int64_t bytes = problem.n * problem.ldd * dtype_bytes(problem.d_dtype);
    if (problem.adds_c && problem.c_is_d) {
      check(cudaMemcpyAsync(d_.get(), addends(problem), static_cast<size_t>(bytes),
                            cudaMemcpyDeviceToDevice, stream_),
            "cudaMemcpyAsync");
    }
    if (!try_multiply(lt_, call, prepare(problem), algorithm, workspace_, stream_)) return false;
    host_.resize(static_cast<size_t>(bytes));
    check(cudaMemcpyAsync(host_.data(), d_.get(), host_.size(), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "the self-test of a product");
    d->resize(static_cast<size_t>(problem.m * problem.n));
    for (int64_t j = 0; j < problem.n; ++j) {
      const std::byte* column = host_.data() + j * problem.ldd * dtype_bytes(problem.d_dtype);
      convert_elements(column, problem.d_dtype, d->data() + j * problem.m, Dtype::kF32, problem.m);
    }
    return true;
  }

 private:
  int64_t operand_bytes(bool k_is_inner, int64_t ld) const {
    const int64_t columns = k_is_inner ? standard_.m : round_up(standard_.k, kExtentStep);
    return columns * ld * dtype_bytes(standard_.dtype);
  }
  int64_t result_bytes() const { return standard_.ldd * standard_.n * 4; }

  // test_addend at the place of every element; the first column is the bias.
  void set_addends(Dtype dtype, const TrialMemory& to) {
    host_.resize(static_cast<size_t>(standard_.n * standard_.ldd * dtype_bytes(dtype)));
    for (int64_t j = 0; j < standard_.n; ++j) {
      for (int64_t i = 0; i < standard_.m; ++i) {
        store_element(host_.data(), dtype, j * standard_.ldd + i, test_addend(i, j));
      }
    }
    // From pageable memory: it is read when the call returns.
    check(cudaMemcpyAsync(to.get(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
  }
  void* addends(const LtProblem& problem) const {
    return problem.d_dtype == Dtype::kF32 ? addends_.get() : narrow_addends_.get();
  }

  LtCall call_of(const LtProblem& problem) const {
    LtCall call;
    call.problem = problem;
    call.a = a_.get();
    call.b = b_.get();
    call.d = d_.get();
    call.c = problem.c_is_d ? d_.get() : addends(problem);
    call.bias = problem.has_bias ? addends(problem) : nullptr;
    return call;
  }

  LtProblem standard_;
  const GemmTrial& trial_;
  const Lt& lt_;
  std::byte* workspace_;
  cudaStream_t stream_;
  TrialMemory a_, b_, addends_, narrow_addends_, d_;
  std::vector<std::byte> host_;
};

}  // namespace

std::unique_ptr<GemmLab> open_lab(const GemmTrial& trial) {
  return std::make_unique<DeviceLab>(trial);
}

}  // namespace weft::cuda
