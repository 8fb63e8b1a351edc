// config/eval_checks.cpp: what the keys of evaluation need from each other.
#include <fmt/core.h>

#include "config/run_config.h"

namespace weft {
namespace {

constexpr const char* kNoAnswer =
    "but there is no answer to compare with: give data.source and data.target";

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

void check_training_evaluation(const RunConfig& c, std::vector<std::string>* complaints) {
  const std::string set = ": give data.eval, or data.eval_fraction";
  if (c.train.early_stop > 0 && !c.has_eval()) {
    complaints->push_back(fmt::format(
        "train.early_stop is {}, but there are no rows for evaluation{}", c.train.early_stop, set));
  }
  if (c.eval.generate > 0 && !c.has_eval()) {
    complaints->push_back(fmt::format("eval.generate is {}, but there are no rows for evaluation{}",
                                      c.eval.generate, set));
  }
  if (c.eval.generate > 0 && c.data.target.empty())
    complaints->push_back(fmt::format("eval.generate is {}, {}", c.eval.generate, kNoAnswer));
  check_best(c, complaints);
}

void check_evaluation(const RunConfig& c, std::vector<std::string>* complaints) {
  if (c.data.target.empty() && c.eval.match == "sql")
    complaints->push_back(fmt::format("eval.match is sql, {}", kNoAnswer));
}

}  // namespace weft
