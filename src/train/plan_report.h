// train/plan_report.h: what a run needs, told before anything is taken.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "train/run_config.h"

namespace weft {

struct PlanReport {
  int64_t num_parameters = 0;
  // Bytes of the one arena, by what they hold. With one pass a step the gradients take room that
  // activations leave: `activations` is what the step's region needs beyond them.
  int64_t parameters = 0, gradients = 0, states = 0, activations = 0, other = 0;
  int64_t arena = 0;     // the sum of the five, to the byte
  int64_t resident = 0;  // peak anonymous memory we expect: arena and what the program itself takes
  double flops = 0;      // of one optimizer step
  int64_t tokens = 0;    // positions fed in one step
  std::optional<double> step_ms;  // from `weft doctor --measure`, where it was run
  std::string dump;

  Json to_json() const;
  std::string to_text() const;
};

PlanReport plan_run(const RunConfig& config);

}  // namespace weft
