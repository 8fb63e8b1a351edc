// train/hang_rule.h: how long the host waits for its GPU before it considers a peer lost.
//
// A GPU computes, and waits for the others inside collectives; the host cannot distinguish the two.
// So the limit is max(deadline, 10 x the median of the last steps), as for launch.hang_timeout_s:
// no wait is longer than a step. Before the first step has ended it is 10 deadlines.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

class HangRule {
 public:
  void note_step(int64_t ms) { last_[count_++ % kKept] = ms; }

  int64_t allowed_ms(int64_t deadline_ms) const {
    constexpr int64_t kTimes = 10, kDayMs = int64_t{24} * 3600 * 1000;
    const int64_t step = count_ == 0 ? deadline_ms : median();
    return std::max(deadline_ms, kTimes * std::min(step, kDayMs));
  }

 private:
  static constexpr size_t kKept = 31;

  int64_t median() const {
    std::array<int64_t, kKept> sorted = last_;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kKept));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
  }

  std::array<int64_t, kKept> last_{};
  size_t count_ = 0;
};

}  // namespace weft
