// train/eval_pass.h: one pass of the loss over the evaluation rows, which a signal may end early.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "data/batches.h"
#include "train/engine.h"
#include "train/ranks.h"
#include "train/record.h"
#include "train/signals.h"

namespace weft {

// The fraction of its rows, from 0 to 1, that a stream has returned including this batch.
double part_done(const BatchStream& stream, const Batch& batch);

// "12.182" for a loss of 2.5; large values as "1.3e+32", or "inf".
std::string perplexity_text(double loss, int decimals = 3);

// "after 37 % of its rows, eval loss 2.31000 so far"
std::string describe_partial(double part, std::optional<double> loss);

struct EvalPass {
  std::optional<double> loss;  // of the whole; empty: no targets, or stopped
  int stop = 0;                // as in NextBatch, the same on all ranks
  std::exception_ptr error;
};

// During training: with progress, recorded and logged at its end. A stop signal abandons it within
// a pass on all ranks at the same place, logged as partial and not recorded.
EvalPass evaluate_rows(BatchStream& stream, Engine& engine, Ranks& ranks,
                       const StopSignals& signals, RunRecord& record, int64_t step);

}  // namespace weft
