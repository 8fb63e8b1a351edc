// train/snapshot_cadence.h: after which steps a snapshot is taken (launch.snapshot_every).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {

// auto: as often as copies cost less than 2 % of the time, with a tenth to spare for copies that
// take longer later; judged by the best of the first few steps (those touch and pin fresh memory).
//
// On the CPU a copy costs what it takes, and one is taken at each of these steps. A GPU copies
// beside its kernels: every second step has no copy, and the cost is by how much the others are
// longer, at least what their updates waited for it and at most what it takes. The copy on another
// node (PartnerCopy::cost_s) comes on top of either: no step shows what it costs, since the next
// snapshot waits for it before its step begins.
class SnapshotCadence {
 public:
  // every: steps, or 0: to be found.
  explicit SnapshotCadence(int64_t every = 1, bool is_on_gpu = false)
      : every_(every), is_on_gpu_(is_on_gpu) {}

  bool is_due(int64_t step) const { return step % distance() == 0; }
  int64_t every() const { return every_; }
  // Of the steps at which one is due, now.
  int64_t distance() const { return every_ > 0 ? every_ : is_on_gpu_ ? 2 : 1; }

  struct Step {
    double step_s;
    bool has_copy;          // of the state before it
    double copy_s, wait_s;  // of that copy, and of its update for it
    double partner_s = 0;   // of the last copy on another node; 0: there is none so far
  };
  // The next one noted is the last: what it lacks is never known.
  bool is_last_trial() const { return every_ == 0 && num_noted_ + 1 >= num_trials(); }
  // Whether enough is known; then all ranks choose the largest wish.
  bool note(const Step& step) {
    if (every_ > 0) return false;
    double& shortest_s = step.has_copy ? with_s_ : without_s_;
    shortest_s = std::min(shortest_s, step.step_s);
    if (step.has_copy) {
      copy_s_ = std::min(copy_s_, step.copy_s);
      wait_s_ = std::min(wait_s_, step.wait_s);
    }
    if (step.partner_s > 0) partner_s_ = std::min(partner_s_, step.partner_s);
    return ++num_noted_ >= num_trials();
  }
  int64_t wish() const {
    constexpr double kMostPart = 0.018, kMost = 1e6, kShortest = 1e-9;
    const double step_s = std::max(kShortest, std::min(with_s_, without_s_));
    return static_cast<int64_t>(
        std::clamp(std::ceil(total_cost_s() / (kMostPart * step_s)), 1.0, kMost));
  }
  void choose(int64_t every) { every_ = every; }

 private:
  static constexpr int kTrials = 5, kGpuTrials = 8;
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  int num_trials() const { return is_on_gpu_ ? kGpuTrials : kTrials; }
  double total_cost_s() const { return cost_s() + (partner_s_ == kNone ? 0.0 : partner_s_); }
  double cost_s() const {
    if (copy_s_ == kNone || with_s_ == kNone) return 0;
    if (!is_on_gpu_ || without_s_ == kNone) return copy_s_;
    return std::min(copy_s_, std::max(wait_s_, with_s_ - without_s_));
  }

  int64_t every_;
  bool is_on_gpu_;
  int num_noted_ = 0;
  double with_s_ = kNone, without_s_ = kNone, copy_s_ = kNone, wait_s_ = kNone,
         partner_s_ = kNone;  // the shortest
};

}  // namespace weft
