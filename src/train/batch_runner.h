// train/batch_runner.h: feeds this rank's rows of a batch to a loss plan, one micro-batch per pass.
#pragma once

#include <cstdint>

#include "base/exact_sum.h"
#include "data/batches.h"
#include "exec/executor.h"
#include "planning/layout.h"

namespace weft {

// All ranks run the same number of passes; pass p uses the rows from p * rows on of a rank's share.
struct Passes {
  int64_t rows = 1, count = 1;
};

// Which rows of a global batch the data-parallel ranks compute: consecutive ones, or where
// gradients are cut after every pass in exact mode, one pass each in turn.
void take_share(const RunConfig& config, const Layout& layout, int rank, StreamOptions* options);

class BatchRunner {
 public:
  BatchRunner(Executor* executor, const Passes& passes);
  // One pass of the executor's length. Rows past the end of a short batch (in an evaluation) have
  // what the model declares for them: length 0, no targets.
  void run(const Batch& batch, int64_t pass);

 private:
  struct Input {  // of the plan
    std::string name;
    Dtype dtype;
    int64_t width;  // elements per row
    int64_t fill;
  };
  void feed(const Batch& batch, int64_t pass, const Input& input);

  Executor* executor_;
  Passes passes_;
  std::vector<Input> inputs_;
};

}  // namespace weft
