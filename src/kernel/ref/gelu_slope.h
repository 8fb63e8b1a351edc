// kernel/ref/gelu_slope.h: GELU in its tanh form, with its slope.
#pragma once

#include <cmath>
#include <numbers>

namespace weft::ref {

struct Gelu {
  double y, slope;
};

inline Gelu gelu_with_tanh(double x) {
  const double root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // of 2 / pi
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double inner_slope = root * (1.0 + 3.0 * 0.044715 * x * x);
  return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope};
}

}  // namespace weft::ref
