// tests/kernel/emulated_cuda/table.cpp: the emulated kernels as tables like those of a backend.
//
// This file and src/kernel/cuda/*.cu are compiled with the namespace cuda renamed, so that a
// program built with CUDA can hold both.
#include "tests/kernel/emulated_cuda/table.h"

#include <vector>

#include "base/error.h"
#include "kernel/cpu/level.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/ops.h"
#include "tensor/cuda/check.h"

namespace weft {

void cuda::fail(cudaError_t, const char* what) { throw BugError(what); }

namespace {

// The products are cuBLASLt's on a GPU; here they are the CPU's, with one thread, since a GPU's
// workspace does not depend on threads. (Not ref's: exact mode needs sums of leaves rounded one by
// one.)
const Kernels& best_level() {
  static const Kernels& best = *find_kernels(available_levels().back());
  return best;
}
size_t cpu_gemm_workspace(const GemmArgs& args) {
  GemmArgs wide = args;  // fp16's are of fp32
  if (args.dtype == Dtype::kF16) wide.dtype = wide.c_dtype = Dtype::kF32;
  return best_level().gemm_workspace(wide, 1);
}

// A stack's rows as fp32, one part behind the other.
class Widened {
 public:
  Widened(const Stack& stack, int64_t columns, Dtype dtype) : stack_(stack), columns_(columns) {
    int64_t rows = 0;
    for (int p = 0; p < stack.count; ++p) rows += stack.rows[p];
    values_.resize(static_cast<size_t>(rows * columns));
    wide_ = stack;
    wide_.ld = columns;
    each_row([&](int p, int64_t from, float* to) {
      for (int64_t i = 0; i < columns; ++i) to[i] = load_element(stack_.part[p], dtype, from + i);
    });
    float* at = values_.data();
    for (int p = 0; p < stack.count; at += stack.rows[p++] * columns) wide_.part[p] = at;
  }
  const Stack& stack() const { return wide_; }
  void store(Dtype dtype) {
    each_row([&](int p, int64_t to, const float* from) {
      for (int64_t i = 0; i < columns_; ++i) store_element(stack_.part[p], dtype, to + i, from[i]);
    });
  }

 private:
  template <typename Fn>
  void each_row(const Fn& fn) {
    float* at = values_.data();
    for (int p = 0; p < stack_.count; ++p) {
      for (int64_t r = 0; r < stack_.rows[p]; ++r, at += columns_) fn(p, r * stack_.ld, at);
    }
  }
  Stack stack_, wide_;
  int64_t columns_;
  std::vector<float> values_;
};

Stack one_part(const void* data, int64_t rows, int64_t ld) {
  Stack s;
  s.part[0] = const_cast<void*>(data);
  s.rows[0] = rows;
  s.count = 1;
  s.ld = ld;
  return s;
}

// fp16: the fp32 product of the same numbers, rounded once.
void half_gemm(const Context& c, const GemmArgs& args) {
  GemmArgs wide = args;
  Widened a(one_part(args.a, args.a_transposed ? args.K : args.M, args.lda),
            args.a_transposed ? args.M : args.K, Dtype::kF16);
  Widened b(args.b, args.b_transposed ? args.K : args.N, Dtype::kF16);
  Widened out(args.c, args.N, args.c_dtype);
  std::vector<Widened> biases;
  biases.reserve(kMaxParts);
  for (int p = 0; p < kMaxParts; ++p) {
    if (!args.bias[p]) continue;
    const int64_t columns = args.b_transposed ? args.b.rows[p] : args.N;
    biases.emplace_back(one_part(args.bias[p], 1, columns), columns, Dtype::kF16);
    wide.bias[p] = biases.back().stack().part[0];
  }
  wide.dtype = wide.c_dtype = Dtype::kF32;
  wide.a = a.stack().part[0];
  wide.lda = a.stack().ld;
  wide.b = b.stack();
  wide.c = out.stack();
  best_level().gemm(c, wide);
  out.store(args.c_dtype);
}

void cpu_gemm(const Context& context, const GemmArgs& args) {
  thread_local ThreadPool one(1);
  Context c = context;
  c.pool = &one;
  args.dtype == Dtype::kF16 ? half_gemm(c, args) : best_level().gemm(c, args);
}

}  // namespace

// The GPU's kernels, but for the products above and for attention, which is the built-in kernel
// alone.
namespace emulated_table {

// What is defined here hides its namesake there.
// NOLINTNEXTLINE(google-build-using-namespace)
using namespace cuda;

void gemm(const Context& context, const GemmArgs& args) { cpu_gemm(context, args); }
size_t gemm_workspace(const GemmArgs& args, int) { return cpu_gemm_workspace(args); }
void attention(const Context& context, const AttentionArgs& args) {
  builtin_attention(context, args);
}
size_t attention_workspace(const AttentionArgs& args, int) {
  return builtin_attention_workspace(args);
}
void attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  builtin_attention_backward(context, args);
}
size_t attention_backward_workspace(const AttentionBackwardArgs& args, int) {
  return builtin_attention_backward_workspace(args);
}

const DeviceKernels& device_kernels() {
  static const DeviceKernels table = {.update_table = update_table,
                                      .update_table_bytes = update_table_bytes,
                                      .squares_table = squares_table,
                                      .squares_table_bytes = squares_table_bytes,
                                      WEFT_DEVICE_KERNELS(WEFT_LIST_PLAIN)};
  return table;
}

const Kernels& kernels() {
  static const Kernels table = {.name = "cuda_emulated",
                                .device = &device_kernels(),
                                WEFT_KERNELS(WEFT_LIST_PLAIN, WEFT_LIST_SCRATCH)};
  return table;
}

}  // namespace emulated_table

const Kernels& emulated_kernels() { return emulated_table::kernels(); }
const DeviceKernels& emulated_device_kernels() { return emulated_table::device_kernels(); }

void emulated_zero_padding(const Context& context, const AttentionArgs& args) {
  cuda::zero_padding(context, cuda::padded_queries(args), args.out, args.lse);
}
void emulated_raise_padding_lse(const Context& context, const AttentionArgs& args, float* to) {
  cuda::raise_padding_lse(context, cuda::padded_queries(args), args.lse, to);
}

void emulated_segment_mask(const Context& context, const AttentionArgs& args, void* mask) {
  cuda::segment_mask(context, args.B, args.T, args.dtype, args.positions, mask);
}

}  // namespace weft
