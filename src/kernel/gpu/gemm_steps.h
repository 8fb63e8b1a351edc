// kernel/gpu/gemm_steps.h: a product as steps for a library that handles single column-major
// matrices.
//
// cuBLASLt multiplies one column-major matrix by another. Row-major C = A · B is column-major
// C^T = B^T · A^T: the operands change places, and their memory stays as it is. What the library
// lacks becomes steps around it: separate parts and unaligned operands are copied together first
// (pack), addends and roundings follow it (sum). A product is cut into blocks of C where parts
// meet, where such a copy would grow too large, and before a ragged end; the chain over k is never
// cut. No CUDA here: the plan is data, tested on the CPU.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "kernel/kernels.h"

namespace weft {

// D (m, n) = op(A) (m, k) · op(B) (k, n) [+ C] [+ bias (m)], all column-major, in cuBLASLt's terms.
// Algorithms are chosen per problem.
struct LtProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;
  bool a_transposed = false, b_transposed = false;
  bool adds_c = false;          // beta 1
  bool c_is_d = true;           // C and D are one matrix
  bool has_bias = false;        // of dtype, which is D's too
  Dtype dtype = Dtype::kF32;    // of A and B
  Dtype d_dtype = Dtype::kF32;  // of C and D
  bool is_tf32 = false;         // fp32 operands may be rounded to TF32
  int64_t alignment = 16;       // bytes, of every pointer: a power of two from 16 to 256
  bool operator==(const LtProblem&) const = default;
};
struct LtCall {
  LtProblem problem;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
};

// to = the parts' rows stacked, the first `columns` of each; null parts are 0.
struct PackCall {
  Stack from;
  int64_t columns = 0;
  Dtype dtype = Dtype::kF32;
  void* to = nullptr;
  int64_t to_ld = 0;
};

// out = round(((product + addends in order) + out where accumulate) + bias), row-major.
struct SumCall {
  int64_t rows = 0, columns = 0;
  const float* product = nullptr;  // null: 0
  int64_t product_ld = 0;
  const float* addend[kMaxAddends] = {};
  int64_t addend_ld[kMaxAddends] = {};
  int num_addends = 0;
  bool accumulate = false;
  const void* bias = nullptr;
  Dtype bias_dtype = Dtype::kF32;
  void* out = nullptr;  // may be product itself
  int64_t out_ld = 0;
  Dtype out_dtype = Dtype::kF32;
};

using GemmStep = std::variant<PackCall, LtCall, SumCall>;

// Copies and fp32 temporaries stay below this, each (unless 8 rows of K are more).
inline constexpr int64_t kPlanBlockBytes = int64_t{32} << 20;
inline constexpr int64_t kOperandAlignment = 16;  // what the library's fast kernels need
// 16 bytes of bf16: leading dimensions of copies are multiples of it, and so is every m of a call,
// and n where op(B) is transposed. For other extents the library has separate kernels, slow and
// with different bits; a ragged end is copied, and multiplied together with what follows it.
inline constexpr int64_t kExtentStep = 8;

// Appends the steps. workspace: gemm_steps_workspace(args) bytes for copies and temporaries.
void plan_gemm(const GemmArgs& args, std::byte* workspace, std::vector<GemmStep>* steps);
// Enough for this product and for every one that is no larger in any extent, for any pointers and
// leading dimensions.
size_t gemm_steps_workspace(const GemmArgs& args);

}  // namespace weft
