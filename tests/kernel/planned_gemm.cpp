// tests/kernel/planned_gemm.cpp: a library of column-major products in a few loops, and the kernels
// around it as emulated.
#include "tests/kernel/planned_gemm.h"

#include <cmath>

#include "base/error.h"

namespace weft {

// kernel/cuda/gemm_kernels.h, as the tests compile it.
namespace emulated {
void pack_parts(const Context& context, const PackCall& call);
void add_up(const Context& context, const SumCall& call);
}  // namespace emulated

namespace {

void run(const PackCall& call) { emulated::pack_parts({}, call); }
void run(const SumCall& call) { emulated::add_up({}, call); }

// What the library requires and weft guarantees.
void check(const LtCall& call) {
  const LtProblem& p = call.problem;
  const auto fits = [&](const void* at, int64_t ld, int64_t rows, Dtype dtype) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    ensure(ld >= rows && ld * dtype_bytes(dtype) % kOperandAlignment == 0,
           "a leading dimension that does not fit");
    ensure(address % static_cast<uintptr_t>(p.alignment) == 0, "less aligned than promised");
  };
  ensure(p.m > 0 && p.n > 0 && p.k > 0, "an empty call");
  ensure(p.m % kExtentStep == 0 && (!p.b_transposed || p.n % kExtentStep == 0), "a ragged call");
  ensure(!p.adds_c || !p.has_bias, "two things to add, in an order that nobody knows");
  ensure(p.alignment >= kOperandAlignment && p.alignment <= 256, "alignment out of range");
  fits(call.a, p.lda, p.a_transposed ? p.k : p.m, p.dtype);
  fits(call.b, p.ldb, p.b_transposed ? p.n : p.k, p.dtype);
  fits(call.c, p.ldc, p.m, p.d_dtype);
  fits(call.d, p.ldd, p.m, p.d_dtype);
  ensure(p.c_is_d == (call.c == call.d), "C and D are one, or not");
  ensure(!p.c_is_d || p.ldc == p.ldd, "one matrix of two leading dimensions");
  ensure(p.has_bias == (call.bias != nullptr), "bias or none");
  if (p.has_bias) {
    ensure(reinterpret_cast<uintptr_t>(call.bias) % kOperandAlignment == 0, "a bias not aligned");
    ensure(p.dtype == p.d_dtype, "a bias of another type than D");
  }
}

// The contract of kernel/cuda/gemm_own.h.
void run(const LtCall& call) {
  check(call);
  const LtProblem& p = call.problem;
  // Widened once; both with k running fastest.
  std::vector<float> a(static_cast<size_t>(p.m * p.k)), b(static_cast<size_t>(p.n * p.k));
  for (int64_t k = 0; k < p.k; ++k) {
    for (int64_t m = 0; m < p.m; ++m) {
      const int64_t at = p.a_transposed ? m * p.lda + k : k * p.lda + m;
      a[static_cast<size_t>(m * p.k + k)] = load_element(call.a, p.dtype, at);
    }
    for (int64_t n = 0; n < p.n; ++n) {
      const int64_t at = p.b_transposed ? k * p.ldb + n : n * p.ldb + k;
      b[static_cast<size_t>(n * p.k + k)] = load_element(call.b, p.dtype, at);
    }
  }
  for (int64_t n = 0; n < p.n; ++n) {
    for (int64_t m = 0; m < p.m; ++m) {
      float sum = 0.0f;
      for (int64_t k = 0; k < p.k; ++k) {
        sum =
            std::fma(a[static_cast<size_t>(m * p.k + k)], b[static_cast<size_t>(n * p.k + k)], sum);
      }
      if (p.adds_c) sum += load_element(call.c, p.d_dtype, n * p.ldc + m);
      if (call.bias) sum += load_element(call.bias, p.d_dtype, m);
      store_element(call.d, p.d_dtype, n * p.ldd + m, sum);
    }
  }
}

void gemm(const Context& context, const GemmArgs& args) {
  std::vector<GemmStep> steps;
  plan_gemm(args, context.workspace, &steps);
  for (const GemmStep& step : steps) run_step(step);
}

size_t gemm_workspace(const GemmArgs& args, int) { return gemm_steps_workspace(args); }

Kernels make_table() {
  Kernels table{};
  table.name = "planned";
  table.gemm = gemm;
  table.gemm_workspace = gemm_workspace;
  return table;
}

}  // namespace

void run_step(const GemmStep& step) {
  std::visit([](const auto& call) { run(call); }, step);
}

const Kernels& planned_kernels() {
  static const Kernels table = make_table();
  return table;
}

}  // namespace weft
