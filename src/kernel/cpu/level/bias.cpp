// kernel/cpu/level/bias.cpp: gradient of a bias: sums over rows.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
void sum_block(const BiasBackwardArgs& args, int64_t columns, int64_t block, float* partial) {
  const T* dy = static_cast<const T*>(args.dy);
  const int64_t begin = block * kRowBlock;
  const int64_t end = lesser(args.R, begin + kRowBlock);
  __builtin_memset(partial, 0, static_cast<size_t>(columns) * sizeof(float));
  for (int64_t r = begin; r < end; ++r) {
    each_vector(columns, [&](int64_t i, auto part) {
      store(partial + i, load(partial + i, part) + load(dy + r * args.N + i, part), part);
    });
  }
}

}  // namespace

size_t bias_backward_workspace(const BiasBackwardArgs& args, int) {
  return static_cast<size_t>(blocks_of(args.R, kRowBlock) * args.N) * sizeof(float);
}

void bias_backward(const Context& context, const BiasBackwardArgs& args) {
  check_workspace("bias_backward", bias_backward_workspace(args, 1), context.workspace_bytes);
  float* partials = reinterpret_cast<float*>(context.workspace);
  const int64_t blocks = blocks_of(args.R, kRowBlock);
  int64_t columns = 0;
  for (int part = 0; part < args.count; ++part) columns += args.cols[part];
  with_type(args.dtype, [&](auto value) {
    context.pool->run(blocks, [&](int64_t block, int) {
      sum_block<decltype(value)>(args, columns, block, partials + block * columns);
    });
  });
  int64_t first = 0;
  for (int part = 0; part < args.count; first += args.cols[part++]) {
    with_type(args.grad_dtype, [&](auto gradient) {
      add_partials(context, partials, blocks, columns, first, args.cols[part],
                   static_cast<decltype(gradient)*>(args.db[part]), args.accumulate);
    });
  }
}

}  // namespace weft::WEFT_LEVEL
