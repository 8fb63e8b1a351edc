// verify/verify_compare.h: two runs of one training compared, by their losses and by their bits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

// What a run left behind.
struct VerifyRun {
  struct Step {
    int64_t step;
    std::optional<double> loss, grad_norm;
  };
  std::string name;
  std::string error;  // why it ended early; empty: it did not
  std::vector<Step> steps;
  std::vector<std::optional<double>> evals;
  std::filesystem::path hashes;  // tensor_hashes.jsonl, which may be large
};
// From metrics.jsonl; missing parts are empty.
VerifyRun read_verify_run(const std::filesystem::path& dir, const std::string& name);

// Tolerances: how much a layout may differ from the base.
struct Bars {
  std::optional<double> max, mean;  // of the losses
  std::optional<double> norm;       // of a step's gradient norm, relative
  std::optional<double> gradient;   // the same for every tensor's own gradient ...
  double gradient_floor = 0;  // ... or relative to this fraction of the overall norm, where larger
  double norm_floor = 0;      // overall norms count as at least this fraction of the largest so far
  bool bits = false;          // all bits must be equal
  bool max_is_given = false, mean_is_given = false;
  std::string to_text() const;
};
// exact: the layout and the base are both in exact mode with the same constants. Whoever gives a
// `max` above the default knows how training amplifies rounding: then norms are not checked.
Bars choose_bars(bool exact, bool bf16, std::optional<double> max, std::optional<double> mean);

// For each step that both have: the absolute difference of the losses, infinite where one is
// missing, and that of the gradient norms relative to the larger (or to Bars' floor), 0 where one
// is missing.
struct StepDifference {
  int64_t step;
  double loss, norm;
};

struct VerifyResult {
  std::string name, error;
  std::optional<double> initial, final, min, mean;  // loss
  std::optional<double> eval;                       // the last evaluation
  double max_diff = 0, mean_diff = 0, final_diff = 0;
  double norm_diff = 0;                 // the largest
  std::optional<double> gradient_diff;  // the same for single tensors; none: not compared
  std::vector<StepDifference> differences;
  // In bits, and how many were compared.
  int64_t num_steps = 0, losses_different = 0, norms_different = 0;
  int64_t num_evals = 0, evals_different = 0;
  // Gradients, weights and states count as separate tensors. Where bits may differ, only the
  // initial weights are hashed: then these two say nothing about training.
  int64_t num_tensors = 0;                     // 0: the runs wrote no hashes to compare
  std::vector<std::string> tensors_different;  // at any step, in order of first occurrence
  int64_t different_at_end = 0;                // of these, at the last step compared
  bool hashes_are_whole = true;                // both runs wrote as many lines
  std::optional<int64_t> first_bad_step;       // 0: the initial weights
  std::optional<std::string> tensor;           // the first that differs there
  Bars bars;                                   // those that were applied
  std::vector<std::string> broken;             // exceeded tolerances, as text
  std::vector<std::string> notes;              // why not more is compared
  bool ok() const { return broken.empty(); }

  Json to_json() const;  // docs/contract.md, JSON output
};
VerifyResult compare_runs(const VerifyRun& base, const VerifyRun& run, const Bars& bars);

}  // namespace weft
