// planning/goodput.cpp: the closed form, and a search for its best interval.
#include "planning/goodput.h"

#include <algorithm>
#include <cmath>

namespace weft {

// To complete s = interval + secure seconds without a failure takes (e^(L s) - 1) / L on average,
// not counting recoveries. Each attempt that fails (e^(L s) - 1 of them on average) is followed by
// a recovery that must itself complete: (e^(L R) - 1) / L. The sum is (e^(L s) - 1) e^(L R) / L.
double expected_interval_s(const Recovery& r, double rate) {
  const double s = r.interval_s + r.secure_s;
  if (rate <= 0) return s;
  return std::expm1(rate * s) * std::exp(rate * r.recovery_s) / rate;
}

double goodput(const Recovery& r, double rate) {
  if (r.interval_s <= 0) return 0;
  const double seconds = expected_interval_s(r, rate);
  return std::isfinite(seconds) ? r.interval_s / seconds : 0;
}

// Goodput rises to one maximum and falls again: the search halves the number of steps between two
// bounds. At most a year between two securings.
double best_interval_s(const Recovery& r, double rate, double step_s, double least_s) {
  constexpr double kYear = 365 * 86400.0;
  int64_t low = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(least_s / step_s)));
  int64_t high = std::max(low, static_cast<int64_t>(kYear / step_s));
  const auto at = [&](int64_t steps) {
    return goodput({static_cast<double>(steps) * step_s, r.secure_s, r.recovery_s}, rate);
  };
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const double here = at(middle);
    // Where nothing is left of a long interval, both are 0: the maximum is below.
    if (here > 0 && at(middle + 1) > here) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<double>(low) * step_s;
}

}  // namespace weft
