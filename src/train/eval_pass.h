// train/eval_pass.h: one pass over the evaluation rows, which a signal may end early.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "data/batches.h"
#include "train/engine.h"
#include "train/ranks.h"
#include "train/record.h"
#include "train/signals.h"
#include "train/training_answers.h"

namespace weft {

// "12.182" for a loss of 2.5; large values as "1.3e+32", or "inf".
std::string perplexity_text(double loss, int decimals = 3);

// "after 37 % of its rows, eval loss 2.31000 so far"
std::string describe_partial(double part, std::optional<double> loss);

// Where the rows come from, and who computes them.
struct EvalRows {
  BatchStream& stream;
  Ranks& ranks;
  const StopSignals& signals;
};

// The totals of all ranks over the batches that were completed, the same on each.
struct EvalSums {
  LossSums sums;
  double part = 0;     // of the rows, from 0 to 1
  double seconds = 0;  // that it took
  int stop = 0;        // as in NextBatch, the same on all ranks
  std::exception_ptr error;

  std::optional<double> loss() const;  // none: no targets
  double tokens_per_s() const;         // without padding
};
// Collective: one batch of its share on this rank, with the totals of all.
using EvalBatch =
    std::function<std::optional<LossSums>(const Batch&, const LengthPlans::IsStopped&)>;
EvalSums sum_losses(const EvalRows& rows, const EvalBatch& eval_batch,
                    const std::function<void(double part, double seconds)>& show);

struct EvalPass {
  std::optional<double> loss;                    // of the whole; empty: no targets, or stopped
  std::optional<double> exact_match, sql_match;  // where answers were generated
  int stop = 0;                                  // as in NextBatch, the same on all ranks
  std::exception_ptr error;

  // The value of checkpoint.best's measure.
  std::optional<double> value(const std::string& measure) const;
};
// Whether a value of the measure is an improvement: losses fall, matches rise. One that is not
// finite never is, not even the first.
bool is_better(const std::string& measure, double value, std::optional<double> before);

// During training: with progress, recorded and logged at its end. A stop signal abandons it within
// a pass on all ranks at the same place, logged as partial and not recorded. answers: null where
// none are generated.
EvalPass evaluate_rows(const EvalRows& rows, Engine& engine, TrainingAnswers* answers,
                       RunRecord& record, int64_t step);

}  // namespace weft
