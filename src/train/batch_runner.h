// train/batch_runner.h: this rank's rows of a batch fed to a loss plan, a micro-batch a pass.
#pragma once

#include <cstdint>

#include "base/exact_sum.h"
#include "data/batches.h"
#include "exec/executor.h"
#include "train/layout.h"

namespace weft {

// Which rows of a global batch a data-parallel rank computes, and when. All ranks make the same
// number of passes. Row r of a rank's pass p is first_row(p) + r.
struct Share {
  int64_t rows_a_pass = 1, num_passes = 1;
  int64_t first = 0;  // row of pass 0
  int64_t step = 1;   // rows from one pass to the next
  int64_t first_row(int64_t pass) const { return first + pass * step; }
};
Share share_of(const RunConfig& config, const Layout& layout, int rank);

class BatchRunner {
 public:
  BatchRunner(Executor* executor, const Share& share);
  // All passes; gives the sum of the token losses of this rank's rows. Rows past the end of a short
  // batch (of an evaluation) have no length and no targets.
  ExactSum run(const Batch& batch);

 private:
  void feed(const Batch& batch, int64_t first_row);

  Executor* executor_;
  Share share_;
  int32_t *ids_, *targets_, *lengths_;
  ExactSum* loss_sum_;
};

}  // namespace weft
