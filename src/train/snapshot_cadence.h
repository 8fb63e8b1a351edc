// train/snapshot_cadence.h: after which steps a snapshot is taken (launch.snapshot_every).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

// auto: as often as copies cost less than 2 % of the time, with a tenth to spare for copies that
// take longer later; judged by the best of the first few steps (those touch and pin fresh memory).
//
// On the CPU a copy costs what it takes, and one is taken at each of these steps. A GPU copies
// beside its kernels: every second step has no copy, and the cost is by how much the others are
// longer, at least what their updates waited for it and at most what it takes.
//
// On several nodes each copy is also sent to another one. That takes cores (sending, receiving, the
// kernel's part of both) and a link that gradients need as well, of which no clock of this process
// knows: only longer steps show it. So the first steps have no copy but the one of the start, which
// the first of them waits for; then come three, with so many steps between that each is sent before
// the next. The cost is by how much the step with a copy and those after it are longer than quiet
// ones: medians, since steps are of unequal length for other reasons too, with more to spare.
class SnapshotCadence {
 public:
  enum class Kind { kHost, kGpu, kNodes };

  // every: steps, or 0: to be found.
  explicit SnapshotCadence(int64_t every = 1, Kind kind = Kind::kHost)
      : every_(every), kind_(kind) {}

  // step: the last one completed.
  bool is_due(int64_t step) const {
    if (every_ == 0 && kind_ == Kind::kNodes) return num_noted_ >= kFirstSteps && offset() == 0;
    return is_chosen_now_ || step % distance() == 0;
  }
  int64_t every() const { return every_; }
  // The most steps from one snapshot to the next, at present.
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
  // On several nodes: what is being sent must arrive before the step that follows.
  bool waits_for_partner() const {
    return every_ == 0 && kind_ == Kind::kNodes &&
           (num_noted_ == 0 || (num_noted_ >= kFirstSteps && offset() == spacing_ - 1));
  }
  // On several nodes: the next step is the first with a copy, and ranks agree (space) on the
  // largest of their fewest steps from one copy to the next.
  bool needs_spacing() const {
    return every_ == 0 && kind_ == Kind::kNodes && num_noted_ == kFirstSteps;
  }
  int64_t fewest_steps() const {
    return sent_s_ == kNone ? kMostSpacing
                            : std::min<int64_t>(1 + steps_in(arrival_s()), kMostSpacing);
  }
  void space(int64_t steps) { spacing_ = steps; }

  // Whether enough is known; then all ranks choose the largest wish.
  bool note(const Step& step) {
    is_chosen_now_ = false;
    if (every_ > 0) return false;
    if (num_noted_ == num_trials()) return true;
    double& shortest_s = step.has_copy ? with_s_ : without_s_;
    shortest_s = std::min(shortest_s, step.step_s);
    if (step.has_copy) {
      copy_s_ = std::min(copy_s_, step.copy_s);
      wait_s_ = std::min(wait_s_, step.wait_s);
    }
    if (step.sent_s > 0) sent_s_ = std::min(sent_s_, step.sent_s);
    if (kind_ == Kind::kNodes) note_on_nodes(step.step_s);
    return ++num_noted_ >= num_trials();
  }
  int64_t wish() const {
    if (kind_ != Kind::kNodes) return steps_in(copy_cost_s() / kMostPart);
    // It cannot cost more than if everything stood still for it, here and where it is received.
    const double cost_s =
        std::max(copy_cost_s(), std::min(longer_s(), known(copy_s_) + 2 * known(sent_s_)));
    // No snapshot waits until the last one has been sent.
    return std::max(steps_in(cost_s / kMostPartOnNodes), steps_in(arrival_s()));
  }
  // With a snapshot at once: the next step that `every` divides may be further from the last one.
  void choose(int64_t every) {
    every_ = every;
    is_chosen_now_ = true;
  }

 private:
  static constexpr int kTrials = 5, kGpuTrials = 8, kFirstSteps = 3, kNodesCopies = 3,
                       kMostSpacing = 8;
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  static constexpr double kMostPart = 0.018, kMostPartOnNodes = 0.014;

  int64_t num_trials() const {
    if (kind_ == Kind::kNodes) return kFirstSteps + kNodesCopies * spacing_;
    return kind_ == Kind::kGpu ? kGpuTrials : kTrials;
  }
  // On several nodes: from the step with the last copy.
  int64_t offset() const { return (num_noted_ - kFirstSteps) % spacing_; }
  void note_on_nodes(double step_s) {
    if (num_noted_ >= kFirstSteps)
      after_copy_s_[offset()][(num_noted_ - kFirstSteps) / spacing_] = step_s;
    const bool has_arrived = num_noted_ < kFirstSteps
                                 ? num_noted_ > 0
                                 : offset() == spacing_ - 1 && steps_in(arrival_s()) < spacing_;
    if (has_arrived) quiet_s_[num_quiet_++] = step_s;
  }
  double arrival_s() const { return known(copy_s_) + known(sent_s_); }
  static double known(double seconds) { return seconds == kNone ? 0 : seconds; }
  int64_t steps_in(double seconds) const {
    constexpr double kMost = 1e6, kShortest = 1e-9;
    const double step_s = std::max(kShortest, std::min(with_s_, without_s_));
    return static_cast<int64_t>(std::clamp(std::ceil(seconds / step_s), 1.0, kMost));
  }
  double copy_cost_s() const {
    if (copy_s_ == kNone || with_s_ == kNone) return 0;
    if (kind_ == Kind::kHost || without_s_ == kNone) return copy_s_;
    return std::min(copy_s_, std::max(wait_s_, with_s_ - without_s_));
  }
  static double median(const double* values, int64_t size) {
    std::vector<double> sorted(values, values + size);
    std::nth_element(sorted.begin(), sorted.begin() + size / 2, sorted.end());
    return sorted[static_cast<size_t>(size / 2)];
  }
  // On several nodes: the steps after a copy, all together. What had not been sent by then goes on
  // to cost as much.
  double longer_s() const {
    const double quiet_s = median(quiet_s_, num_quiet_);
    double sum = 0;
    for (int64_t i = 0; i < spacing_; ++i) sum += median(after_copy_s_[i], kNodesCopies) - quiet_s;
    const double seen_s = static_cast<double>(spacing_) * quiet_s;
    return sum * std::max(1.0, known(sent_s_) / seen_s);
  }

  int64_t every_;
  Kind kind_;
  bool is_chosen_now_ = false;
  int64_t num_noted_ = 0, spacing_ = 2;
  double with_s_ = kNone, without_s_ = kNone, copy_s_ = kNone, wait_s_ = kNone,
         sent_s_ = kNone;  // the shortest
  double after_copy_s_[kMostSpacing][kNodesCopies] = {};
  double quiet_s_[kFirstSteps - 1 + kNodesCopies] = {};
  int64_t num_quiet_ = 0;
};

}  // namespace weft
