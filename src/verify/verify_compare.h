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
// From metrics.jsonl; what is not there is empty.
VerifyRun read_verify_run(const std::filesystem::path& dir, const std::string& name);

// What a layout may differ from the base.
struct Bars {
  std::optional<double> max, mean;  // of the losses
  std::optional<double> norm;       // of a step's gradient norm, as a part of it
  std::optional<double> gradient;   // the same of every tensor's own gradient ...
  double gradient_floor = 0;        // ... or of this part of the whole norm, where that is more
  double norm_floor = 0;            // whole norms below this part of the largest so far count as it
  bool bits = false;                // nothing may, not in one bit
  bool max_is_given = false, mean_is_given = false;
  std::string to_text() const;
};
// exact: the layout and the base are both of exact mode with the same constants. Who gives a `max`
// above the default knows what the training makes of rounding: then norms are not held to a bar of
// ours.
Bars choose_bars(bool exact, bool bf16, std::optional<double> max, std::optional<double> mean);

// Of each step that both have: the absolute difference of the losses, infinite where one has none,
// and that of the gradient norms as a part of the larger (or of Bars' floor), 0 where one has none.
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
  std::optional<double> gradient_diff;  // the same of single tensors; none: none were compared
  std::vector<StepDifference> differences;
  // In bits, of so many compared.
  int64_t num_steps = 0, losses_different = 0, norms_different = 0;
  int64_t num_evals = 0, evals_different = 0;
  // Gradients, weights and states count as tensors of their own. Of a layout whose bits may differ
  // only the initial weights are hashed: then these two say nothing about the training.
  int64_t num_tensors = 0;                     // 0: the runs wrote no hashes to compare
  std::vector<std::string> tensors_different;  // at any step, in the order of their first time
  int64_t different_at_end = 0;                // of these, at the last step compared
  bool hashes_are_whole = true;                // both runs wrote as many lines
  std::optional<int64_t> first_bad_step;       // 0: the initial weights
  std::optional<std::string> tensor;           // the first that differs there
  Bars bars;                                   // those that something was held to
  std::vector<std::string> broken;             // bars, in words
  std::vector<std::string> notes;              // why no more is compared
  bool ok() const { return broken.empty(); }

  Json to_json() const;  // docs/contract.md, JSON output
};
VerifyResult compare_runs(const VerifyRun& base, const VerifyRun& run, const Bars& bars);

}  // namespace weft
