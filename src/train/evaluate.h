// train/evaluate.h: loss, perplexity and matches of a model over the rows of a run file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "planning/backend.h"
#include "train/rank_place.h"
#include "train/signals.h"

namespace weft {

// The same on all ranks, except for lists of rows in `counters`, which are those of one rank.
struct EvalReport {
  std::string model;            // what was evaluated
  std::optional<int64_t> step;  // of a checkpoint
  double loss_sum = 0;
  int64_t rows = 0, target_tokens = 0;
  std::optional<double> exact_match;  // fraction of the rows whose answer was generated exactly
  std::optional<double> sql_match;    // the same for SQL (text/sql_form.h), with eval.match: sql
  double tokens_per_s = 0;            // of the loss, without padding
  DataCounters counters;              // of the evaluation rows: what was dropped, cut, repaired
  int stop_signal = 0;                // that ended it: the results cover the rows before
  double part = 0;                    // fraction of the rows whose loss was measured

  std::optional<double> loss() const;
  Json to_json() const;
};

struct EvalOptions {
  bool shows = false;                   // progress on the terminal
  bool is_forced = false;               // continues although memory is insufficient
  std::optional<RankPlace> place = {};  // none: a process alone
};

// The answers to a signal, of a process alone and of a supervisor.
inline constexpr StopWords kEvalWords{": stopped before anything was evaluated",
                                      ": stopping; what was evaluated so far follows",
                                      ", the second signal: exiting at once", 128 + SIGINT};

// The rows of data.eval or eval_fraction. model: a folder, checkpoint or run directory; empty: the
// run's newest checkpoint, or model.path where it has none. With data.target the answers are
// generated greedily from the prompts, cut as in training, and compared; a row without a prompt,
// because of the cut or an empty source, counts as not matched. UserError where there are no rows.
//
// The ranks of the run file's layout compute it together, each row on one of them; a process alone
// (without options.place) is the only rank. On launch.device unless given. A signal (base/stop.h)
// ends it within a second, with the results so far. Rejected where memory is insufficient.
EvalReport evaluate(const RunConfig& config, const std::string& model,
                    const Backend* given = nullptr, const EvalOptions& options = {});

}  // namespace weft
