// base/exact_sum.h: a sum of doubles without rounding, so that order and grouping do not matter.
//
// The sum is one long fixed-point number: limb i counts units of 2^(32 i - 1088), and an addend
// touches three limbs. Sums of parts are added limb by limb as integers, by any rank in any order;
// the result is rounded to a double once, at the end. A limb holds 2^30 addends before it could
// overflow; ranks add normalized limbs, so the number of ranks is bounded in the same way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

class ExactSum {
 public:
  static constexpr int kLimbs = 70;  // the last counts addends that are infinite or NaN

  void clear() { limbs_.fill(0); }
  void add(double v);
  void add(const ExactSum& other) {
    for (int i = 0; i < kLimbs; ++i)
      limbs_[static_cast<std::size_t>(i)] += other.limbs_[static_cast<std::size_t>(i)];
  }
  void normalize();      // carries: every limb but the highest ends in [0, 2^32)
  double value() const;  // NaN where an addend was not finite
  int64_t* limbs() { return limbs_.data(); }

 private:
  std::array<int64_t, kLimbs> limbs_{};
};

}  // namespace weft
