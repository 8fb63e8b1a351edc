// kernel/cuda/gemm_exact.cpp: tests the library's bits for exact mode, on the GPU.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/round_up.h"
#include "kernel/cuda/gemm_choose.h"
#include "kernel/cuda/gemm_kernels.h"
#include "tensor/cuda/check.h"

namespace weft::cuda {
namespace {

Context context_of(void* stream) { return {nullptr, nullptr, 0, stream}; }

// A matrix in memory.
struct Place {
  int64_t rows, columns, ld;
  Dtype dtype;
  int64_t bytes() const { return columns * ld * dtype_bytes(dtype); }
};
Place place_a(const LtProblem& p) {
  return {p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.lda, p.dtype};
}
Place place_b(const LtProblem& p) {
  return {p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.ldb, p.dtype};
}
Place place_c(const LtProblem& p) { return {p.m, p.n, p.ldc, p.d_dtype}; }
Place place_d(const LtProblem& p) { return {p.m, p.n, p.ldd, p.d_dtype}; }
Place place_bias(const LtProblem& p) { return {p.m, 1, p.m, p.d_dtype}; }

RepeatCall repeated(const void* from, const Place& f, void* to, const Place& t) {
  return {from, f.rows, f.columns, f.ld, to, t.rows, t.columns, t.ld, t.dtype};
}

// The real product, or a part of it, with operands, C and bias that repeat those of the test. D is
// the real one, which the call writes anyway, unless it is an input too.
class WholeProduct {
 public:
  WholeProduct(const LtProblem& problem, void* real_d, const LtCall& test, void* stream)
      : test_(test),
        stream_(stream),
        a_(place_a(problem).bytes()),
        b_(place_b(problem).bytes()),
        c_(problem.adds_c ? place_c(problem).bytes() : kNothing),
        bias_(problem.has_bias ? place_bias(problem).bytes() : kNothing),
        differs_(kNothing) {
    call_.problem = problem;
    call_.a = a_.get();
    call_.b = b_.get();
    call_.c = problem.adds_c ? c_.get() : real_d;
    call_.d = problem.adds_c && problem.c_is_d ? c_.get() : real_d;
    call_.bias = problem.has_bias ? bias_.get() : nullptr;
  }

  const LtProblem& problem() const { return call_.problem; }
  bool has_memory() const {
    const auto memory = {&a_, &b_, &c_, &bias_, &differs_};
    return std::all_of(memory.begin(), memory.end(), [](const auto* m) { return m->get(); });
  }

  void fill() {
    repeat_test(test_.a, place_a(test_.problem), a_, place_a(problem()));
    repeat_test(test_.b, place_b(test_.problem), b_, place_b(problem()));
    if (problem().has_bias) {
      repeat_test(test_.bias, place_bias(test_.problem), bias_, place_bias(problem()));
    }
  }

  // want: fp32, of the test's extents.
  bool has(const Lt& lt, const LtAlgorithm& algorithm, std::byte* workspace, const void* want) {
    if (problem().adds_c) {  // repeated for each: D may be written there
      repeat_test(test_.c, place_c(test_.problem), c_, place_c(problem()));
    }
    const LtPrepared prepared = prepare(problem());
    if (!try_multiply(lt, call_, prepared, algorithm, workspace, stream_)) return false;
    auto* stream = static_cast<cudaStream_t>(stream_);
    check(cudaMemsetAsync(differs_.get(), 0, sizeof(int32_t), stream), "memset");
    compare_repeated(context_of(stream_),
                     repeated(want, place_d(test_.problem), call_.d, place_d(problem())),
                     static_cast<int32_t*>(differs_.get()));
    int32_t differs = 0;
    check(cudaMemcpyAsync(&differs, differs_.get(), sizeof differs, cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "the test of a whole product");
    return differs == 0;
  }

 private:
  static constexpr int64_t kNothing = 256;  // bytes

  void repeat_test(const void* from, const Place& f, const TrialMemory& to, const Place& t) {
    repeat(context_of(stream_), repeated(from, f, to.get(), t));
  }

  LtCall test_, call_;
  void* stream_;
  TrialMemory a_, b_, c_, bias_, differs_;
};

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
      if (!memory->get()) fail_without_memory();
    }
    const GemmKey key = key_of(trial.call.problem);
    const Context context = context_of(trial.stream);
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
    ensure(problem == trial_.call.problem, "not the product that is being tried");
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

  bool repeats(const LtProblem& problem, const LtAlgorithm& algorithm,
               const std::vector<float>& want) override {
    ensure(problem == trial_.call.problem, "not the product that is being tried");
    if (!whole_) whole_ = make_whole(problem);
    // From pageable memory: it has been read when the call returns.
    check(cudaMemcpyAsync(d_.get(), want.data(), want.size() * sizeof(float),
                          cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    return whole_->has(lt_, algorithm, workspace_, d_.get());
  }

 private:
  [[noreturn]] static void fail_without_memory() {
    throw RunError("not enough GPU memory to test a product's bits");
  }

  // Halves where memory is short, but not below the test's own size.
  std::unique_ptr<WholeProduct> make_whole(const LtProblem& problem) const {
    LtProblem test = standard_;
    test.adds_c = problem.adds_c;
    test.c_is_d = false;
    test.has_bias = problem.has_bias;
    test.d_dtype = problem.d_dtype;
    LtProblem part = problem;
    while (true) {
      auto whole =
          std::make_unique<WholeProduct>(part, trial_.call.d, call_of(test), trial_.stream);
      if (whole->has_memory()) {
        whole->fill();
        if (!(part == problem)) {
          log_warning("exact mode: for lack of memory {} was tested only at m {} n {}",
                      weft::describe(problem), part.m, part.n);
        }
        return whole;
      }
      if (std::max(part.m, part.n) <= standard_.m) fail_without_memory();
      part = halved(part);
    }
  }

  int64_t operand_bytes(bool k_is_inner, int64_t ld) const {
    const int64_t columns = k_is_inner ? standard_.m : round_up(standard_.k, kExtentStep);
    return columns * ld * dtype_bytes(standard_.dtype);
  }
  int64_t result_bytes() const { return standard_.ldd * standard_.n * 4; }

  // test_addend at the position of every element; the first column is the bias.
  void set_addends(Dtype dtype, const TrialMemory& to) {
    host_.resize(static_cast<size_t>(standard_.n * standard_.ldd * dtype_bytes(dtype)));
    for (int64_t j = 0; j < standard_.n; ++j) {
      for (int64_t i = 0; i < standard_.m; ++i) {
        store_element(host_.data(), dtype, j * standard_.ldd + i, test_addend(i, j));
      }
    }
    // From pageable memory: it has been read when the call returns.
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
  std::unique_ptr<WholeProduct> whole_;
  std::vector<std::byte> host_;
};

}  // namespace

std::unique_ptr<GemmLab> open_lab(const GemmTrial& trial) {
  return std::make_unique<DeviceLab>(trial);
}

}  // namespace weft::cuda
