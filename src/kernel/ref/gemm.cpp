// kernel/ref/gemm.cpp: the matrix product, one element after another.
#include <algorithm>
#include <iterator>

#include "kernel/ref/ref.h"

namespace weft::ref {
namespace {

struct StackRow {
  int part;
  int64_t row;
};

// The address of row `row` of the whole stack.
StackRow find_row(const Stack& stack, int64_t row) {
  int part = 0;
  while (part + 1 < stack.count && row >= stack.rows[part]) row -= stack.rows[part++];
  return {part, row};
}

double b_element(const GemmArgs& args, int64_t k, int64_t n) {
  const StackRow at = find_row(args.b, args.b_transposed ? n : k);
  const int64_t column = args.b_transposed ? k : n;
  return get(args.b.part[at.part], args.dtype, at.row * args.b.ld + column);
}

double bias_element(const GemmArgs& args, int64_t n) {
  if (!args.b_transposed) return args.bias[0] ? get(args.bias[0], args.dtype, n) : 0.0;
  const StackRow at = find_row(args.b, n);
  return args.bias[at.part] ? get(args.bias[at.part], args.dtype, at.row) : 0.0;
}

}  // namespace

void gemm(const Context&, const GemmArgs& args) {
  const bool has_bias = std::any_of(std::begin(args.bias), std::end(args.bias),
                                    [](const void* bias) { return bias != nullptr; });
  for (int64_t m = 0; m < args.M; ++m) {
    const StackRow to = find_row(args.c, m);
    for (int64_t n = 0; n < args.N; ++n) {
      const int64_t index = to.row * args.c.ld + n;
      double sum = 0.0;
      for (int64_t k = 0; k < args.K; ++k) {
        const int64_t a_index = args.a_transposed ? k * args.lda + m : m * args.lda + k;
        sum += get(args.a, args.dtype, a_index) * b_element(args, k, n);
      }
      for (int i = 0; i < args.num_addends; ++i) {
        const StackRow from = find_row(args.addend[i], m);
        sum = plus_fp32(sum, get(args.addend[i].part[from.part], Dtype::kF32,
                                 from.row * args.addend[i].ld + n));
      }
      if (args.accumulate) sum = plus_fp32(sum, get(args.c.part[to.part], args.c_dtype, index));
      if (has_bias) sum = plus_fp32(sum, bias_element(args, n));
      put(args.c.part[to.part], args.c_dtype, index, sum);
    }
  }
}

}  // namespace weft::ref
