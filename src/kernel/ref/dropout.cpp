// kernel/ref/dropout.cpp: dropout of an activation, element by element.
#include "kernel/dropout.h"

#include "kernel/ref/ref.h"

namespace weft::ref {

void dropout(const Context&, const DropoutArgs& args) {
  for (int64_t b = 0; b < args.B; ++b) {
    const HeadDropout row = row_dropout(args.rate, args.seed, args.site, args.rows + 2 * b);
    for (int64_t t = 0; t < args.T; ++t) {
      for (int64_t c = 0; c < args.C; ++c) {
        const int64_t column = args.first_column + c, at = (b * args.T + t) * args.C + c;
        const PhiloxBlock words = element_dropout_words(row.key, t, column / kDropoutQuad);
        const bool is_dropped = words.word[column % kDropoutQuad] < row.threshold;
        put(args.y, args.dtype, at,
            get(args.x, args.dtype, at) * (is_dropped ? 0.0 : double{row.scale}));
      }
    }
  }
}

}  // namespace weft::ref
