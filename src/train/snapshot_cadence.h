// train/snapshot_cadence.h: after which steps a snapshot is taken (launch.snapshot_every).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {

// auto: as often as copies cost less than 2 % of the time, with a tenth to spare for copies that
// take longer later; judged by the best of the first few steps (those touch and pin fresh memory).
//
// On the CPU a copy costs what it takes, and one is taken at each of these steps. A GPU copies
// beside its kernels: every second step has no copy, and the cost is by how much the others are
// longer, at least what their updates waited for it and at most what it takes.
//
// Of several nodes each copy is also sent to another one. That takes cores (sending, receiving, the
// kernel's part of both) and a link that gradients need as well, of which no clock of this process
// knows: only longer steps show it. So a few calm steps come first, then copies so far apart that
// steps without anything on the wire follow each. The cost is by how much all of these steps are
// longer than calm ones: their medians, since the shortest have found the link free by chance.
class SnapshotCadence {
 public:
  enum class Kind { kHost, kGpu, kNodes };

  // every: steps, or 0: to be found.
  explicit SnapshotCadence(int64_t every = 1, Kind kind = Kind::kHost)
      : every_(every), kind_(kind) {}

  // step: the last one completed.
  bool is_due(int64_t step) const {
    if (every_ == 0 && kind_ == Kind::kNodes) return num_noted_ >= kCalm && offset() == 0;
    return is_chosen_now_ || step % distance() == 0;
  }
  int64_t every() const { return every_; }
  // Of snapshots, now: the most steps from one to the next.
  int64_t distance() const {
    if (every_ > 0) return every_;
    if (kind_ == Kind::kNodes) return kMostSpacing;
    return kind_ == Kind::kGpu ? 2 : 1;
  }

  struct Step {
    double step_s;
    bool has_copy;          // of the state before it
    double copy_s, wait_s;  // of that copy, and of its update for it
    double sent_s = 0;      // on the way to another node, of the last copy; 0: none was sent so far
  };
  // Of several nodes: what is on its way must arrive during this step, and that time is part of it.
  bool is_awaited() const {
    return every_ == 0 && kind_ == Kind::kNodes &&
           (num_noted_ == 0 || (num_noted_ >= kCalm && offset() == spacing_ - 1));
  }
  // Of several nodes: the next step is the first with a copy, and ranks agree (space) on the
  // largest of their fewest steps from one copy to the next.
  bool is_spaced() const { return every_ == 0 && kind_ == Kind::kNodes && num_noted_ == kCalm; }
  int64_t fewest_steps() const {
    return 1 + std::clamp<int64_t>(steps_in(sent_s_), 1, kMostSpacing - 1);
  }
  void space(int64_t steps) { spacing_ = steps; }

  // Whether enough is known; then all ranks choose the largest wish.
  bool note(const Step& step) {
    is_chosen_now_ = false;
    if (every_ > 0) return false;
    double& shortest_s = step.has_copy ? with_s_ : without_s_;
    shortest_s = std::min(shortest_s, step.step_s);
    if (step.has_copy) {
      copy_s_ = std::min(copy_s_, step.copy_s);
      wait_s_ = std::min(wait_s_, step.wait_s);
    }
    if (step.sent_s > 0) sent_s_ = std::min(sent_s_, step.sent_s);
    if (kind_ == Kind::kNodes && num_noted_ >= kCalm)
      after_copy_s_[offset()][(num_noted_ - kCalm) / spacing_] = step.step_s;
    return ++num_noted_ >= num_trials();
  }
  int64_t wish() const {
    constexpr double kMostPart = 0.018;
    const double cost_s =
        kind_ == Kind::kNodes ? std::max(copy_cost_s(), longer_s()) : copy_cost_s();
    return std::max(steps_in(cost_s / kMostPart), steps_in(sent_s_));  // none waits for the wire
  }
  // With a snapshot at once: the next step that `every` divides may be further from the last one.
  void choose(int64_t every) {
    every_ = every;
    is_chosen_now_ = true;
  }

 private:
  static constexpr int kTrials = 5, kGpuTrials = 8, kCalm = 3, kNodesCopies = 3, kMostSpacing = 8;
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  int64_t num_trials() const {
    if (kind_ == Kind::kNodes) return kCalm + kNodesCopies * spacing_;
    return kind_ == Kind::kGpu ? kGpuTrials : kTrials;
  }
  // Of several nodes: since the step with the last copy.
  int64_t offset() const { return (num_noted_ - kCalm) % spacing_; }
  int64_t steps_in(double seconds) const {
    constexpr double kMost = 1e6, kShortest = 1e-9;
    const double step_s = std::max(kShortest, std::min(with_s_, without_s_));
    return seconds == kNone
               ? 1
               : static_cast<int64_t>(std::clamp(std::ceil(seconds / step_s), 1.0, kMost));
  }
  double copy_cost_s() const {
    if (copy_s_ == kNone || with_s_ == kNone) return 0;
    if (kind_ == Kind::kHost || without_s_ == kNone) return copy_s_;
    return std::min(copy_s_, std::max(wait_s_, with_s_ - without_s_));
  }
  double longer_s() const {
    double sum = 0;
    for (int64_t i = 0; i < spacing_; ++i) {
      std::array<double, kNodesCopies> steps_s = after_copy_s_[i];
      std::nth_element(steps_s.begin(), steps_s.begin() + kNodesCopies / 2, steps_s.end());
      sum += steps_s[kNodesCopies / 2] - std::min(with_s_, without_s_);
    }
    return sum;
  }

  int64_t every_;
  Kind kind_;
  bool is_chosen_now_ = false;
  int64_t num_noted_ = 0, spacing_ = 2;
  double with_s_ = kNone, without_s_ = kNone, copy_s_ = kNone, wait_s_ = kNone,
         sent_s_ = kNone;  // the shortest
  std::array<std::array<double, kNodesCopies>, kMostSpacing> after_copy_s_{};
};

}  // namespace weft
