// train/batch_runner.h: batches fed to the executor of a loss plan, a micro-batch a pass.
#pragma once

#include <cstdint>

#include "data/batches.h"
#include "exec/executor.h"

namespace weft {

class BatchRunner {
 public:
  BatchRunner(Executor* executor, int64_t micro_batch);
  // All passes of the batch; gives the sum of the token losses. A short last micro-batch (of an
  // evaluation) is filled with rows without length and without targets.
  double run(const Batch& batch);

 private:
  void feed(const Batch& batch, int64_t first_row);

  Executor* executor_;
  int64_t micro_batch_;
  int32_t *ids_, *targets_, *lengths_;
  const double* loss_sum_;
};

}  // namespace weft
