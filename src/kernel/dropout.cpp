// kernel/dropout.cpp: the draws of a call's head or row; out of line, so that levels do not each
// compile them.
#include "kernel/dropout.h"

namespace weft {

HeadDropout head_dropout(const AttentionDropout& dropout, int64_t b, int64_t h) {
  if (dropout.rate == 0) return {};
  return {dropout_key(dropout.seed, dropout.site, dropout.first_head + h, dropout.rows[2 * b],
                      dropout.rows[2 * b + 1]),
          dropout_threshold(dropout.rate), dropout_scale(dropout.rate)};
}

HeadDropout row_dropout(double rate, uint64_t seed, int64_t site, const int64_t* row) {
  return {element_dropout_key(seed, site, row[0], row[1]), dropout_threshold(rate),
          dropout_scale(rate)};
}

}  // namespace weft
