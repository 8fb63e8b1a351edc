// train/loss_scaling.h: fp16's loss scale as seen by the host: logged, saved and restored.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "tensor/loss_scale.h"
#include "train/engine.h"
#include "train/record.h"

namespace weft {

class LossScaling {
 public:
  LossScaling(const RunConfig& config, const Engine& engine);
  bool is_on() const { return now_.has_value(); }

  // From state.json. One of another precision has none: the run file's is used.
  void load(const Json& state, Engine* engine);
  void save(Json* state) const;

  // A step's norm, and the scale that the device has for the next. False: the gradients were not
  // finite and the step was skipped, which is logged. At the minimum scale there is nothing left to
  // try, and the caller judges the norm.
  [[nodiscard]] bool take(double norm, const LossScale& next, StepMetrics* line, RunRecord* record);
  int64_t skipped() const { return now_ ? now_->skipped : 0; }  // steps of the run

 private:
  std::optional<LossScale> now_;  // the next step's
};

// The factor by which a step's gradients exceed those of the sum of its losses; none: it had no
// gradients, or they were not finite.
std::optional<double> gradient_factor(const RunConfig& config, const StepMetrics& line);

}  // namespace weft
