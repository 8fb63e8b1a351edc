// tests/kernel/emulated_cuda/table.cpp: the emulated kernels as tables like those of a back end.
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

// The products are cuBLASLt's on a GPU; here they are the CPU's, by one thread, since a GPU's
// workspace knows of no threads. (Not ref's: exact mode wants sums of leaves rounded one by one.)
const Kernels& best_level() {
  static const Kernels& best = *find_kernels(available_levels().back());
  return best;
}
size_t gemm_workspace(const GemmArgs& args, int) {
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

void gemm(const Context& context, const GemmArgs& args) {
  thread_local ThreadPool one(1);
  Context c = context;
  c.pool = &one;
  args.dtype == Dtype::kF16 ? half_gemm(c, args) : best_level().gemm(c, args);
}

}  // namespace

// Attention is the own kernel alone.
const Kernels& emulated_kernels() {
  static const Kernels table = [] {
    Kernels t = ref_kernels();
    t.name = "cuda_emulated";
    t.gemm = gemm;
    t.gemm_workspace = gemm_workspace;
    t.embedding = cuda::embedding;
    t.embedding_backward = cuda::embedding_backward;
    t.embedding_backward_workspace = cuda::embedding_backward_workspace;
    t.rmsnorm = cuda::rmsnorm;
    t.rmsnorm_backward = cuda::rmsnorm_backward;
    t.rmsnorm_backward_workspace = cuda::rmsnorm_backward_workspace;
    t.rope = cuda::rope;
    t.swiglu = cuda::swiglu;
    t.swiglu_backward = cuda::swiglu_backward;
    t.cross_entropy = cuda::cross_entropy;
    t.softmax_stats = cuda::softmax_stats;
    t.softmax_gradient = cuda::softmax_gradient;
    t.bias_backward = cuda::bias_backward;
    t.bias_backward_workspace = cuda::bias_backward_workspace;
    t.add = cuda::add;
    t.cached_attention = cuda::cached_attention;
    t.cached_attention_workspace = cuda::cached_attention_workspace;
    t.attention = cuda::own_attention;
    t.attention_workspace = [](const AttentionArgs&, int) -> size_t { return 0; };
    t.attention_backward = cuda::own_attention_backward;
    t.attention_backward_workspace = [](const AttentionBackwardArgs& args, int) {
      return cuda::own_attention_backward_workspace(args);
    };
    t.squares = cuda::squares;
    t.adamw = cuda::adamw;
    t.device = &emulated_device_kernels();
    return t;
  }();
  return table;
}

const DeviceKernels& emulated_device_kernels() {
  static const DeviceKernels table = {
      .cross_entropy_kept = cuda::cross_entropy_kept,
      .exact_sum = cuda::exact_sum,
      .norm = cuda::norm,
      .adamw_table = cuda::adamw_table,
      .adamw_table_bytes = cuda::adamw_table_bytes,
      .adamw_list = cuda::adamw_list,
      .squares_table = cuda::squares_table,
      .squares_table_bytes = cuda::squares_table_bytes,
      .squares_list = cuda::squares_list,
      .store_sum = cuda::store_sum,
      .round_sum = cuda::round_sum,
      .tell_leaf = cuda::tell_leaf,
      .tell_target = cuda::tell_target,
      .join_leaves = cuda::join_leaves,
      .local_targets = cuda::local_targets,
      .take_rows = cuda::take_rows,
      .reduce_tree = cuda::reduce_tree,
  };
  return table;
}

void emulated_zero_padding(const Context& context, const AttentionArgs& args) {
  cuda::zero_padding(context, args.B, args.T, args.H * args.D, args.dtype, args.lengths, args.out,
                     args.H, args.lse);
}
void emulated_raise_padding_lse(const Context& context, const AttentionArgs& args, float* to) {
  cuda::raise_padding_lse(context, args.B, args.H, args.T, args.lengths, args.lse, to);
}

void emulated_segment_mask(const Context& context, const AttentionArgs& args, void* mask) {
  cuda::segment_mask(context, args.B, args.T, args.dtype, args.positions, mask);
}

}  // namespace weft
