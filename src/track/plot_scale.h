// track/plot_scale.h: maps values to positions on an axis, and places its ticks.
#pragma once

#include <string>
#include <vector>

#include "track/plot.h"

namespace weft {

class Scale {
 public:
  // Linear, or logarithmic where requested and all values are positive.
  Scale(double low, double high, bool is_log);
  double place(double value) const;  // 0 at low, 1 at high
  std::vector<double> ticks(int wanted) const;
  Scale& whole() {  // ticks at whole numbers only
    is_whole_ = true;
    return *this;
  }
  bool is_log() const { return is_log_; }

 private:
  double low_, high_;
  bool is_log_;
  bool is_whole_ = false;
};

std::string tick_label(double value);
// The losses of a curve: logarithmic where they span more than a factor of 20, else from a round
// value below the smallest. A few initial losses far above the rest do not set the scale.
Scale loss_scale(const LossCurve& curve);
Scale step_scale(const LossCurve& curve);

}  // namespace weft
