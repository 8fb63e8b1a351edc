// kernel/cpu/level/rmsnorm.cpp: root-mean-square norm with residual add, and its gradient.
//
// A row fits in the L1 cache, so it is walked twice: statistics, then result.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rms_row.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

// s = x + residual, rounded; its sum of squares.
template <typename T>
[[gnu::flatten]] float add_residual(const T* x, const T* residual, T* sum, int64_t C) {
  Vecs sums = zero();
  each_four(C, [&](int64_t i, int chain, auto part) {
    auto s = load(x + i, part);
    if (residual) s = round_to(T{}, s + load(residual + i, part));
    if (sum) store(sum + i, s, part);
    auto& squares = chain_of(sums, chain, part);
    squares = fma(s, s, squares);
  });
  return sum_all(sums);
}

template <typename T, bool kOffset>
[[gnu::flatten]] void norm_row(const RmsNormArgs& args, int64_t r) {
  const int64_t base = r * args.C;
  const T* x = static_cast<const T*>(args.x) + base;
  const T* residual = args.residual ? static_cast<const T*>(args.residual) + base : nullptr;
  T* sum = args.sum ? static_cast<T*>(args.sum) + base : nullptr;
  const float squares = add_residual(x, residual, sum, args.C);
  if (!args.reuse_rstd) args.rstd[r] = rstd_of(squares, args.C, args.eps);
  if (!args.y) return;
  apply_norm<T, kOffset>(sum ? sum : x, static_cast<const T*>(args.weight), args.rstd[r],
                         static_cast<T*>(args.y) + base, args.C);
}

template <typename T, bool kOffset>
[[gnu::flatten]] void norm_row_backward(const RmsNormBackwardArgs& args, int64_t r,
                                        float* dweight) {
  const int64_t base = r * args.C;
  norm_backward<T, kOffset>(static_cast<const T*>(args.dy) + base,
                            static_cast<const T*>(args.s) + base,
                            args.dsum ? static_cast<const T*>(args.dsum) + base : nullptr,
                            static_cast<const T*>(args.weight), args.rstd[r],
                            static_cast<T*>(args.dx) + base, dweight, args.C);
}

}  // namespace

void rmsnorm(const Context& context, const RmsNormArgs& args) {
  with_type(args.dtype, [&](auto value) {
    with_offset(args.weight_offset, [&](auto offset) {
      each_row(context, args.R, args.C,
               [&](int64_t r) { norm_row<decltype(value), decltype(offset)::value>(args, r); });
    });
  });
}

size_t rmsnorm_backward_workspace(const RmsNormBackwardArgs& args, int) {
  if (!args.dweight) return 0;
  return static_cast<size_t>(blocks_of(args.R, kRowBlock) * args.C) * sizeof(float);
}

void rmsnorm_backward(const Context& context, const RmsNormBackwardArgs& args) {
  check_workspace("rmsnorm_backward", rmsnorm_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int64_t blocks = blocks_of(args.R, kRowBlock);
  with_type(args.dtype, [&](auto value) {
    with_offset(args.weight_offset, [&](auto offset) {
      context.pool->run(blocks, [&](int64_t block, int) {
        float* dweight = args.dweight ? partials + block * args.C : nullptr;
        if (dweight) __builtin_memset(dweight, 0, static_cast<size_t>(args.C) * sizeof(float));
        const int64_t end = lesser(args.R, (block + 1) * kRowBlock);
        for (int64_t r = block * kRowBlock; r < end; ++r) {
          norm_row_backward<decltype(value), decltype(offset)::value>(args, r, dweight);
        }
      });
    });
  });
  if (!args.dweight) return;
  with_type(args.grad_dtype, [&](auto gradient) {
    add_partials(context, partials, blocks, args.C, 0, args.C,
                 static_cast<decltype(gradient)*>(args.dweight), args.accumulate);
  });
}

}  // namespace weft::WEFT_LEVEL
