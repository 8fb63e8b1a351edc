// train/snapshot_cadence.h: after which steps a snapshot is taken (launch.snapshot_every).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace weft {

// auto: as often as the copies take less than 2 % of the time, judged by the fastest copy and the
// fastest step of the first few, at each of which one is taken (the first touch fresh memory).
class SnapshotCadence {
 public:
  // every: steps, or 0: to be found.
  explicit SnapshotCadence(int64_t every = 1) : every_(every) {}

  bool is_due(int64_t step) const { return every_ == 0 || step % every_ == 0; }
  int64_t every() const { return every_; }

  // Whether enough is known; then all ranks choose the largest wish.
  bool note(double step_s, double copy_s) {
    if (every_ > 0) return false;
    step_s_ = num_noted_ == 0 ? step_s : std::min(step_s_, step_s);
    copy_s_ = num_noted_ == 0 ? copy_s : std::min(copy_s_, copy_s);
    return ++num_noted_ >= kTrials;
  }
  int64_t wish() const {
    constexpr double kMostPart = 0.02, kMost = 1e6;
    return static_cast<int64_t>(
        std::clamp(std::ceil(copy_s_ / (kMostPart * std::max(step_s_, 1e-9))), 1.0, kMost));
  }
  void choose(int64_t every) { every_ = every; }

 private:
  static constexpr int kTrials = 5;
  int64_t every_;
  int num_noted_ = 0;
  double step_s_ = 0, copy_s_ = 0;
};

}  // namespace weft
