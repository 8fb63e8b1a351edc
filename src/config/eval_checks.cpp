// config/eval_checks.cpp: what the keys of evaluation need from each other.
#include <fmt/core.h>

#include "config/run_config.h"

namespace weft {
namespace {

// Answers in training share the arena of the training plans, with whole weights.
void check_answers_layout(const RunConfig& c, std::vector<std::string>* complaints) {
  if (c.eval.generate == 0) return;
  const std::string shard = c.parallel.shard == "fsdp" ? "zero3" : c.parallel.shard;
  const std::string what = c.parallel.tp > 1           ? "parallel.tp above 1"
                           : shard == "zero3"          ? "parallel.shard: zero3"
                           : c.parallel.mode != "fast" ? "parallel.mode: exact"
                                                       : "";
  if (what.empty()) return;
  complaints->push_back(
      fmt::format("eval.generate is {}, but answers during training are not built yet with {}: set "
                  "it to 0, and measure a checkpoint with `weft eval`",
                  c.eval.generate, what));
}

void check_best(const RunConfig& c, std::vector<std::string>* complaints) {
  const std::string& best = c.checkpoint.best;
  if (best == "eval_loss") return;
  const std::string match = best == "sql_match" ? "sql" : "exact";
  if (c.eval.generate == 0) {
    complaints->push_back(
        fmt::format("checkpoint.best is {}, which compares generated answers, but eval.generate is "
                    "0: set it to the number of rows to answer, or checkpoint.best to eval_loss",
                    best));
  }
  if (c.eval.match != match) {
    complaints->push_back(fmt::format("checkpoint.best is {}, but eval.match is {}: set it to {}",
                                      best, c.eval.match, match));
  }
}

}  // namespace

void check_evaluation(const RunConfig& c, std::vector<std::string>* complaints) {
  const std::string set = ": give data.eval, or data.eval_fraction";
  if (c.train.early_stop > 0 && !c.has_eval()) {
    complaints->push_back(fmt::format(
        "train.early_stop is {}, but there are no rows for evaluation{}", c.train.early_stop, set));
  }
  if (c.eval.generate > 0 && !c.has_eval()) {
    complaints->push_back(fmt::format("eval.generate is {}, but there are no rows for evaluation{}",
                                      c.eval.generate, set));
  }
  if (c.data.target.empty() && (c.eval.generate > 0 || c.eval.match == "sql")) {
    complaints->push_back(
        fmt::format("{}, but there is no answer to compare with: give data.source and data.target",
                    c.eval.generate > 0 ? fmt::format("eval.generate is {}", c.eval.generate)
                                        : "eval.match is sql"));
  }
  check_best(c, complaints);
  check_answers_layout(c, complaints);
}

}  // namespace weft
