// kernel/kernels.h: every operation as a pure function, and the table that one backend fills.
//
// Legend: B rows of the batch, T positions, S source positions, R = B*T tokens, C channels, H
// heads, G key/value heads, D head dim, F feed-forward width, V vocabulary. The gradient of x is
// dx. Floating tensors are fp32, bf16 or (ref and GPUs) fp16 ("dtype" of the arguments); products
// accumulate in fp32; norms, softmax, rope and loss work in fp32 inside. A gradient of a parameter
// has its own dtype (grad_dtype): fp32 or bf16; with fp16 values always fp32.
//
// No kernel allocates: scratch comes from Context::workspace, whose size the workspace functions
// return when the plan is made; gemm_workspace's size also suffices for every product that is no
// larger in any extent. No kernel's bits depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/threads.h"
#include "kernel/attention_args.h"
#include "kernel/norm_args.h"
#include "kernel/update_args.h"
#include "tensor/dtype.h"

namespace weft {

struct Context {
  ThreadPool* pool;
  std::byte* workspace;  // 64-byte aligned
  size_t workspace_bytes;
  void* stream = nullptr;  // of a GPU (cudaStream_t): kernels queue their work there and return
};

// Matrices of one width stacked vertically: q, k, v (or gate, up) as a single operand.
inline constexpr int kMaxParts = 24;  // q, k, v in eight pieces each
struct Stack {
  void* part[kMaxParts] = {};
  int64_t rows[kMaxParts] = {};
  int count = 0;
  int64_t ld = 0;  // elements from one row to the next
};

// C (M, N) = A (M, K) · B (K, N) [+ addends] [+ C] [+ bias (N)]. Element (m, n) is one fp32 chain
// over k in order, whatever M, N, the threads or the cache blocks; then the others are added in
// this order in fp32, and one rounding ends it. Addends are the sums of other leaves of a tree
// contraction (exact mode).
inline constexpr int kMaxAddends = 8;
struct GemmArgs {
  int64_t M, N, K;
  Dtype dtype;    // of A, B and bias
  Dtype c_dtype;  // of C
  const void* a;
  int64_t lda;
  bool a_transposed;  // false: a[m * lda + k]; true: a[k * lda + m]
  Stack b;
  bool b_transposed;  // false: rows are k (K rows of N); true: rows are n (N rows of K)
  Stack c;            // rows are m
  bool accumulate;    // C += instead of C =
  const void* bias[kMaxParts] = {};  // (N): one per part of b where b_transposed, else the first
  Stack addend[kMaxAddends] = {};    // fp32, rows are m
  int num_addends = 0;
};

// The table holds the ids from first_id on. Other ids yield zeros, or leave their row of `out`
// unchanged (keep_others).
struct EmbeddingArgs {
  int64_t R, C, V;
  Dtype dtype;
  const int32_t* ids;  // (R)
  const void* table;   // (V, C)
  void* out;           // (R, C)
  int64_t first_id = 0;
  bool keep_others = false;
};

// dtable[ids[r] - first_id] += dout[r], rows of one id added in order of r. Not accumulate: dtable
// is zeroed first. Rows whose id is padding_id (-1: none), or not in the table, contribute nothing.
struct EmbeddingBackwardArgs {
  int64_t R, C, V;
  Dtype dtype, grad_dtype;
  const int32_t* ids;
  int32_t padding_id;
  const void* dout;
  void* dtable;
  bool accumulate;
  int64_t first_id = 0;
};

// Rotates q and k inside qkv (R, (H + 2 G) D) in place, halves as Hugging Face does
// (rotate_half). inverse: the gradient. Position of token r: positions[r], or r % T where null.
struct RopeArgs {
  int64_t R, T, H, G, D;
  Dtype dtype;
  void* qkv;
  const float* cosine;  // (positions, D / 2)
  const float* sine;
  const int32_t* positions;
  bool inverse;
};

// h = silu(gate) * up; gate_up (R, 2 F): gate, then up.
struct SwigluArgs {
  int64_t R, F;
  Dtype dtype;
  const void* gate_up;
  void* h;  // (R, F)
};
struct SwigluBackwardArgs {
  int64_t R, F;
  Dtype dtype;
  const void* dh;
  const void* gate_up;
  void* dgate_up;  // may be gate_up itself
  // Not null: recomputes h with swiglu's bits; may be dh itself.
  void* h = nullptr;
};

// h = gelu(gate) * up, GELU in its tanh form (see GeluArgs); otherwise as swiglu.
struct GegluArgs {
  int64_t R, F;
  Dtype dtype;
  const void* gate_up;
  void* h;  // (R, F)
};
struct GegluBackwardArgs {
  int64_t R, F;
  Dtype dtype;
  const void* dh;
  const void* gate_up;
  void* dgate_up;  // may be gate_up itself
  // Not null: recomputes h with geglu's bits; may be dh itself.
  void* h = nullptr;
};

// y = x * Phi(x), Phi the normal distribution's: (1 + erf(x / sqrt(2))) / 2, or with
// approximate_tanh (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
struct GeluArgs {
  int64_t n;
  Dtype dtype;
  bool approximate_tanh;
  const void* x;
  void* y;  // may be x itself
};
struct GeluBackwardArgs {
  int64_t n;
  Dtype dtype;
  bool approximate_tanh;
  const void* dy;
  const void* x;
  void* dx;  // may be x or dy itself
  // Not null: recomputes y with gelu's bits; may be dy or x, whichever dx is not.
  void* y = nullptr;
};

// y = max(x, 0); NaN stays.
struct ReluArgs {
  int64_t n;
  Dtype dtype;
  const void* x;
  void* y;  // may be x itself
};
// dx = dy where y > 0, else 0: y suffices instead of x, and the next product keeps it anyway.
struct ReluBackwardArgs {
  int64_t n;
  Dtype dtype;
  const void* dy;
  const void* y;
  void* dx;  // may be dy or y itself
};

// losses[r] = log-sum-exp(logits[r]) - logits[r][target]; with_gradient: logits become
// softmax - onehot. A row whose target is negative has loss 0 and gradient 0.
struct CrossEntropyArgs {
  int64_t R, V;
  Dtype dtype;
  void* logits;  // (R, V)
  const int32_t* targets;
  float* losses;
  bool with_gradient;
  const float* factor = nullptr;  // of the gradient (ref and GPUs); null: 1
};

// The same in two halves, for logits whose columns are on several ranks or form several leaves:
// highest[r] and sum[r] of exp(logit - highest) over V columns ...
struct SoftmaxStatsArgs {
  int64_t R, V, ld;
  Dtype dtype;
  const void* logits;  // (R, V), rows ld apart
  float* highest;      // (R); -infinity where V is 0
  double* sum;         // (R)
};
// ... and logits <- exp(logit - highest[r]) * scale[r], less one at column targets[r] (negative:
// the target is not among these columns).
struct SoftmaxGradientArgs {
  int64_t R, V, ld;
  Dtype dtype;
  void* logits;
  const int32_t* targets;
  const float* highest;
  const float* scale;
  const float* factor = nullptr;  // of the whole, a power of two (ref and GPUs); null: 1
};

// db[n] (+)= sum over rows of dy[r][n]; rows are N apart, and the first columns belong to the
// parts one after the other.
struct BiasBackwardArgs {
  int64_t R, N;
  Dtype dtype, grad_dtype;
  const void* dy;  // (R, N)
  void* db[kMaxParts];
  int64_t cols[kMaxParts];
  int count;
  bool accumulate;
};

// out = a + b
struct AddArgs {
  int64_t n;
  Dtype dtype;
  const void* a;
  const void* b;
  void* out;  // may be a or b
};

// y = x * factor
struct ScaleArgs {
  int64_t n;
  Dtype dtype;
  float factor;
  const void* x;
  void* y;  // may be x
};

// y = x * mask / (1 - rate), the mask 0 or 1 by kernel/dropout.h; x times 0 or times the fp32
// number nearest to 1 / (1 - rate), rounded once more: all backends have the same bits. The
// gradient is the same with dy as x.
struct DropoutArgs {
  int64_t B, T, C;
  Dtype dtype;
  double rate;
  uint64_t seed;
  int64_t site;
  int64_t first_column;  // of the logical tensor, the first of this call
  const int64_t* rows;   // (B, 2): a row's epoch and its index in the epoch
  const void* x;         // (B, T, C)
  void* y;               // may be x
};

// partials[i] = float64 sum of squares of cell i: kNormCell consecutive elements, one fixed order.
struct SquaresArgs {
  int64_t n;
  Dtype dtype;
  const void* x;
  double* partials;  // (ceil(n / kNormCell))
};

// Every kernel of a backend, once: PLAIN(name, Args), or SCRATCH(name, Args) where a second
// function, name_workspace, returns the bytes of workspace that a call needs with the given number
// of threads. The table below, and the declarations and tables of all backends, are generated from
// this list.
#define WEFT_KERNELS(PLAIN, SCRATCH)                 \
  SCRATCH(gemm, GemmArgs)                            \
  PLAIN(embedding, EmbeddingArgs)                    \
  SCRATCH(embedding_backward, EmbeddingBackwardArgs) \
  PLAIN(rmsnorm, RmsNormArgs)                        \
  SCRATCH(rmsnorm_backward, RmsNormBackwardArgs)     \
  PLAIN(layernorm, LayerNormArgs)                    \
  SCRATCH(layernorm_backward, LayerNormBackwardArgs) \
  PLAIN(qk_norm, QkNormArgs)                         \
  SCRATCH(qk_norm_backward, QkNormBackwardArgs)      \
  PLAIN(rope, RopeArgs)                              \
  SCRATCH(attention, AttentionArgs)                  \
  SCRATCH(attention_backward, AttentionBackwardArgs) \
  PLAIN(fill_cache, FillCacheArgs)                   \
  SCRATCH(cached_attention, CachedAttentionArgs)     \
  PLAIN(swiglu, SwigluArgs)                          \
  PLAIN(swiglu_backward, SwigluBackwardArgs)         \
  PLAIN(geglu, GegluArgs)                            \
  PLAIN(geglu_backward, GegluBackwardArgs)           \
  PLAIN(gelu, GeluArgs)                              \
  PLAIN(gelu_backward, GeluBackwardArgs)             \
  PLAIN(relu, ReluArgs)                              \
  PLAIN(relu_backward, ReluBackwardArgs)             \
  PLAIN(cross_entropy, CrossEntropyArgs)             \
  PLAIN(softmax_stats, SoftmaxStatsArgs)             \
  PLAIN(softmax_gradient, SoftmaxGradientArgs)       \
  SCRATCH(bias_backward, BiasBackwardArgs)           \
  PLAIN(add, AddArgs)                                \
  PLAIN(scale, ScaleArgs)                            \
  PLAIN(dropout, DropoutArgs)                        \
  PLAIN(squares, SquaresArgs)                        \
  PLAIN(adamw, AdamwArgs)                            \
  PLAIN(sgd, SgdArgs)

// In a backend's namespace: declares all its kernels, and (between the braces of an initializer)
// lists all of them as members of the table.
#define WEFT_DECLARE_PLAIN(name, Args) void name(const Context& context, const Args& args);
#define WEFT_DECLARE_SCRATCH(name, Args) \
  WEFT_DECLARE_PLAIN(name, Args)         \
  size_t name##_workspace(const Args& args, int num_threads);
#define WEFT_LIST_PLAIN(name, Args) .name = name,
#define WEFT_LIST_SCRATCH(name, Args) .name = name, .name##_workspace = name##_workspace,

struct DeviceKernels;  // kernel/device_kernels.h

// One backend. Every pointer is set, except `device` on the CPU.
struct Kernels {
  const char* name;  // "ref", "neon", "neon_bf16", "avx2", "avx512", "avx512_bf16", "amx", "cuda"
  // Not null: tensors are in GPU memory, and these do what the host otherwise does itself.
  const DeviceKernels* device = nullptr;
#define WEFT_MEMBER_PLAIN(name, Args) void (*name)(const Context&, const Args&);
#define WEFT_MEMBER_SCRATCH(name, Args) \
  WEFT_MEMBER_PLAIN(name, Args)         \
  size_t (*name##_workspace)(const Args&, int num_threads);
  WEFT_KERNELS(WEFT_MEMBER_PLAIN, WEFT_MEMBER_SCRATCH)
#undef WEFT_MEMBER_PLAIN
#undef WEFT_MEMBER_SCRATCH
};

const Kernels& ref_kernels();

// The best level of this machine, or the one that WEFT_CPU_LEVEL names (UserError where the
// machine lacks it; the message lists what it has). "ref" is accepted too.
const Kernels& cpu_kernels();
const Kernels* find_kernels(const char* name);  // null: unknown, or not on this machine

}  // namespace weft
