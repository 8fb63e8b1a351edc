// track/plot_scale.cpp: round ticks: 1, 2 or 5 times a power of ten.
#include "track/plot_scale.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double round_step(double span, int wanted) {
  const double rough = span / std::max(1, wanted);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Scale::Scale(double low, double high, bool is_log)
    : low_(low), high_(high), is_log_(is_log && low > 0) {
  if (!(high_ > low_)) high_ = low_ + 1;
}

double Scale::place(double value) const {
  if (is_log_) {
    return std::log(std::max(value, 1e-300) / low_) / std::log(high_ / low_);
  }
  return (value - low_) / (high_ - low_);
}

std::vector<double> Scale::ticks(int wanted) const {
  std::vector<double> out;
  const double slack = 1e-9;
  if (is_log_) {
    const bool is_wide = std::log10(high_ / low_) > 3.2;
    for (double power = std::pow(10, std::floor(std::log10(low_))); power <= high_; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double v = factor * power;
        const bool is_shown = factor == 1.0 || !is_wide;
        if (is_shown && v >= low_ * (1 - slack) && v <= high_ * (1 + slack)) out.push_back(v);
      }
    }
    return out;
  }
  const double rough = round_step(high_ - low_, wanted);
  const double step = is_whole_ ? std::max(1.0, rough) : rough;
  for (double k = std::ceil(low_ / step - slack); k * step <= high_ + step * slack; ++k) {
    out.push_back(k * step + 0.0);  // never -0
  }
  return out;
}

std::string tick_label(double value) {
  if (value != 0 && std::abs(value) < 1e-4) return fmt::format("{:.0e}", value);
  if (std::abs(value) >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (std::abs(value) >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

Scale loss_scale(const LossCurve& curve) {
  std::vector<double> values;
  for (const CurvePoint& p : curve.train) values.push_back(p.y);
  for (const CurvePoint& p : curve.eval) values.push_back(p.y);
  if (values.empty()) return {0, 1, false};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (*low > 0 && *high / *low > 20) return {*low * 0.9, *high * 1.1, true};
  const double step = round_step(std::max(*high - *low, 1e-6), 6);
  return {std::max(0.0, std::floor(*low / step) * step), *high + 0.04 * (*high - *low), false};
}

Scale step_scale(const LossCurve& curve) {
  double last = 1;
  for (const CurvePoint& p : curve.train) last = std::max(last, p.x);
  for (const CurvePoint& p : curve.eval) last = std::max(last, p.x);
  return Scale(0, last, false).whole();
}

}  // namespace weft
