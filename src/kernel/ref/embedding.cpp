// kernel/ref/embedding.cpp: rows of a table by number, and their gradient.
#include "kernel/ref/ref.h"

namespace weft::ref {

void embedding(const Context&, const EmbeddingArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    const int64_t id = args.ids[r] - args.first_id;
    const bool is_here = id >= 0 && id < args.V;
    if (!is_here && args.keep_others) continue;
    for (int64_t c = 0; c < args.C; ++c) {
      put(args.out, args.dtype, r * args.C + c,
          is_here ? get(args.table, args.dtype, id * args.C + c) : 0.0);
    }
  }
}

// One rounding per element: all rows of an id are summed before they are added to the table.
void embedding_backward(const Context&, const EmbeddingBackwardArgs& args) {
  for (int64_t id = 0; id < args.V; ++id) {
    for (int64_t c = 0; c < args.C; ++c) {
      const int64_t index = id * args.C + c;
      double sum = 0.0;
      for (int64_t r = 0; r < args.R; ++r) {
        const int64_t here = args.ids[r] - args.first_id;
        if (here != id || args.ids[r] == args.padding_id) continue;
        sum += get(args.dout, args.dtype, r * args.C + c);
      }
      if (args.accumulate) sum = plus_fp32(sum, get(args.dtable, args.grad_dtype, index));
      put(args.dtable, args.grad_dtype, index, sum);
    }
  }
}

}  // namespace weft::ref
