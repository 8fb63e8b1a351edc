// planning/repeat.h: times something by repetition on a possibly busy machine.
//
// Other work only slows things down, so the shortest time counts; a median far above it means that
// the machine was busy, and that the shortest may be too long as well.
#pragma once

#include <algorithm>
#include <vector>

namespace weft {

struct Repeated {
  double best = 0;    // the shortest
  double spread = 0;  // median / best - 1
};

inline constexpr double kBusySpread = 0.2;

inline Repeated judge(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front();
  return {best, best > 0 ? seconds[seconds.size() / 2] / best - 1 : 0};
}

}  // namespace weft
