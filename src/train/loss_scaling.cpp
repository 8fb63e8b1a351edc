// train/loss_scaling.cpp: the scale after a step, in metrics, events and state.json.
#include "train/loss_scaling.h"

#include <cmath>
#include <utility>

#include "base/log.h"

namespace weft {

LossScaling::LossScaling(const RunConfig& config, const Engine& engine) {
  if (config.scales_loss()) now_ = engine.loss_scale();
}

void LossScaling::load(const Json& state, Engine* engine) {
  const Json* kept = state.find("loss_scaling");
  if (!now_ || !kept) return;
  now_->scale = static_cast<float>(state.at("loss_scale").as_number());
  now_->good_steps = static_cast<int32_t>(kept->at("good_steps").as_int());
  now_->skipped = static_cast<int32_t>(kept->at("skipped_steps").as_int());
  engine->set_loss_scale(*now_);
}

void LossScaling::save(Json* state) const {
  state->set("loss_scale", now_ ? Json(static_cast<double>(now_->scale)) : Json(1));
  if (!now_) return;
  Json more;
  more.set("good_steps", Json(int64_t{now_->good_steps}));
  more.set("skipped_steps", Json(int64_t{now_->skipped}));
  state->set("loss_scaling", more);
}

bool LossScaling::take(double norm, const LossScale& next, StepMetrics* line, RunRecord* record) {
  if (!now_) return true;
  const auto used = static_cast<double>(std::exchange(*now_, next).scale);
  line->loss_scale = used;
  if (std::isfinite(norm) || used <= static_cast<double>(kLeastLossScale)) return true;
  const auto then = static_cast<double>(next.scale);
  record->event(
      "overflow",
      {{"step", Json(line->step)}, {"loss_scale", Json(used)}, {"next_loss_scale", Json(then)}});
  record->clear_progress();
  log_info("step {}: a gradient is too large for fp16 at loss scale {}: skipped, next {}",
           line->step, used, then);
  return false;
}

std::optional<double> gradient_factor(const RunConfig& config, const StepMetrics& line) {
  if (!line.grad_norm) return std::nullopt;
  if (!line.loss_scale) return 1;
  return *line.loss_scale / static_cast<double>(config.loss_divisor());  // LossScale::factor
}

}  // namespace weft
