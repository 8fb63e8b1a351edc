// kernel/device_kernels.h: GPU operations for what the host computes by itself on the CPU.
//
// On the CPU the executor dereferences pointers: it sums losses, joins the leaves of a softmax,
// rounds a sum. It cannot access GPU memory, so there each of these is a kernel, queued on
// Context::stream like the others. All pointers are to device memory.
#pragma once

#include "kernel/kernels.h"
#include "kernel/optimizer_scalars.h"
#include "tensor/loss_scale.h"

namespace weft {

// limbs (+)= the addends as a sum without rounding (base/exact_sum.h): integer additions, so any
// order yields the same bits. clear: limbs are zeroed first. The limbs are left normalized.
struct ExactSumArgs {
  int64_t n;
  Dtype dtype;     // kF32 or kF64
  const void* x;   // (n)
  int64_t* limbs;  // (ExactSum::kLimbs)
  bool clear;
};

// What changes from step to step, in device memory: a captured graph reads it on every replay.
struct UpdateScalars {
  double target_tokens, clip_norm;
  OptimizerScalars optimizer;
};

// norm = sqrt(value of the limbs) / target_tokens; scale = min(1, clip_norm / (norm + 1e-6)) /
// target_tokens (clip_norm 0: no clipping), in double as exec/ops/grad_norm.cpp does. loss_scale
// (fp16): its factor is divided out of both, and updated for the next step; where the norm is not
// finite, scale is NaN, which makes an update a no-op.
struct NormArgs {
  const int64_t* limbs;
  const UpdateScalars* scalars;
  double* norm;
  float* scale;
  LossScale* loss_scale = nullptr;
};

// One parameter of an update over all of them, and the types of its tensors.
inline constexpr int kMaxUpdateStates = 2;
struct UpdateItem {
  int64_t n;
  void* p;
  float* master;  // or null
  const void* grad;
  void* states[kMaxUpdateStates];  // in the optimizer's order; null: it has fewer
  bool decay;
  double* partials = nullptr;  // sums_squares: those of its gradient, as squares_list's
};
struct UpdateTypes {
  Dtype dtype, grad_dtype;
  Dtype state_dtypes[kMaxUpdateStates] = {Dtype::kF32, Dtype::kF32};
  bool has_master = false;
  int num_states = 0;
  bool operator==(const UpdateTypes&) const = default;
};
// An optimizer's update over all items in one launch; the arguments of its kernel for one parameter
// say how it computes. All items have the same dtypes. The table is in device memory: filled once
// by update_table from the items, update_table_bytes long. A no-op where scale is NaN.
// sums_squares: also the squares of the gradients, which it reads anyway, with the bits of
// squares_list. The norm is not known yet then: scale is not read, but 1 / target_tokens taken.
struct UpdateListArgs {
  UpdateTypes types;
  const std::byte* table;
  int64_t num_blocks;  // as update_table returned
  const UpdateScalars* scalars;
  const float* scale;
  bool sums_squares = false;
};
// Types of which an update can: eight neighbouring elements are one thread's, as in squares_list.
inline bool can_sum_squares(const UpdateTypes& types) {
  bool is_narrow = types.dtype == Dtype::kBf16 && types.grad_dtype == Dtype::kBf16;
  for (int s = 0; s < types.num_states; ++s)
    is_narrow = is_narrow && types.state_dtypes[s] == Dtype::kBf16;
  return is_narrow;
}

// The squares of all gradients in one launch: partials of item i begin at partials[i].
struct SquaresItem {
  int64_t n;
  const void* x;
  double* partials;
};
struct SquaresListArgs {
  Dtype dtype;
  const std::byte* table;
  int64_t num_blocks;
};

// out = round(sum [+ out]) over n elements: an fp32 sum becomes, or is added to, a gradient.
struct StoreSumArgs {
  int64_t n;
  const float* sum;
  void* out;
  Dtype out_dtype;
  bool accumulate;
};

// Rows of `columns`: out = round(sum + bias). bias null: none. out may be sum itself.
struct RoundSumArgs {
  int64_t rows, columns;
  Dtype sum_dtype, dtype;  // of sum; of bias and out
  const void* sum;
  const void* bias;
  void* out;
};

// The softmax over a vocabulary in leaves, a chunk of n tokens (exec/head.h). A rank contributes
// stats_per_token = 2 * leaves + 1 doubles per token: (maximum, sum of exp) of each of its leaves,
// and the target's logit where it is among its columns, else 0.
struct LeafStatsArgs {
  int64_t n, stats_per_token;
  int leaf;              // index among this rank's leaves
  const float* highest;  // (n), from softmax_stats
  const double* sum;     // (n)
  double* leaves;        // (n, stats_per_token)
};
struct TargetLogitArgs {
  int64_t n, stats_per_token, V;
  Dtype dtype;
  const void* logits;  // (n, V)
  const int32_t* targets;
  int64_t first_id;  // the id of column 0
  double* leaves;
};
// All ranks' leaves (num_ranks, n, stats_per_token) -> loss, overall maximum, 1 / overall sum. The
// maximum is exact; sums are rescaled to it and added in a binary tree. A token whose target is
// negative has loss 0 and scale 0.
struct JoinLeavesArgs {
  int64_t n, stats_per_token;
  int num_ranks;
  const double* leaves;
  const int32_t* targets;
  float *losses, *highest, *scale;  // (n) each
};
// local[i] = targets[i] - first where that is in [0, width), else -1.
struct LocalTargetsArgs {
  int64_t n, first, width;
  const int32_t* targets;
  int32_t* local;
};

// out[i] = x[i * T + last[i]], rows of C elements.
struct TakeRowsArgs {
  int64_t B, T, C;
  Dtype dtype;
  const void* x;
  const int32_t* last;
  void* out;
};

// The sum or maximum over ranks, the tree of comm/comm.h, written to several places (of all ranks).
// fp32, bf16, fp16, fp64 and int64.
inline constexpr int kMaxReduced = 16;
struct ReduceTreeArgs {
  int num_in, num_out;
  const void* in[kMaxReduced];
  void* out[kMaxReduced];  // may be inputs
  int64_t count;
  Dtype dtype;
  bool is_max;
};

// cross_entropy with explicit settings of how much of a row stays on chip between its two passes:
// for benchmarks. The bits do not depend on it.
struct KeptCrossEntropyArgs {
  CrossEntropyArgs args;
  int blocks_per_sm;     // 1 or 2, which share the SM's memory; 0: every row is read twice
  int64_t shared_bytes;  // maximum per block; capped at what the device offers
};

// Every GPU kernel beyond those of kernels.h, once, except those below that fill tables.
#define WEFT_DEVICE_KERNELS(PLAIN)                \
  PLAIN(cross_entropy_kept, KeptCrossEntropyArgs) \
  PLAIN(exact_sum, ExactSumArgs)                  \
  PLAIN(norm, NormArgs)                           \
  PLAIN(adamw_list, UpdateListArgs)               \
  PLAIN(sgd_list, UpdateListArgs)                 \
  PLAIN(squares_list, SquaresListArgs)            \
  PLAIN(store_sum, StoreSumArgs)                  \
  PLAIN(round_sum, RoundSumArgs)                  \
  PLAIN(store_leaf_stats, LeafStatsArgs)          \
  PLAIN(store_target_logit, TargetLogitArgs)      \
  PLAIN(join_leaves, JoinLeavesArgs)              \
  PLAIN(local_targets, LocalTargetsArgs)          \
  PLAIN(take_rows, TakeRowsArgs)                  \
  PLAIN(reduce_tree, ReduceTreeArgs)

struct DeviceKernels {
  // Fills `table` (host memory, copied to the device by the caller) and returns the number of
  // blocks.
  int64_t (*update_table)(const UpdateItem* items, int64_t count, std::byte* table);
  size_t (*update_table_bytes)(const UpdateItem* items, int64_t count);
  int64_t (*squares_table)(const SquaresItem* items, int64_t count, std::byte* table);
  size_t (*squares_table_bytes)(const SquaresItem* items, int64_t count);
#define WEFT_MEMBER_PLAIN(name, Args) void (*name)(const Context&, const Args&);
  WEFT_DEVICE_KERNELS(WEFT_MEMBER_PLAIN)
#undef WEFT_MEMBER_PLAIN
};

// Null where the program was built without CUDA.
const Kernels* cuda_kernels();

}  // namespace weft
