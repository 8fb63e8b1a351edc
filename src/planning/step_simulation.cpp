// planning/step_simulation.cpp: two clocks. The compute lane issues the list in order; a collective
// that is posted starts when those before it are done, so its times are known at once.
#include "planning/step_simulation.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

class Lanes {
 public:
  explicit Lanes(double share) : speed_(1 - share) {}

  double now() const { return now_; }

  void post(double seconds) {
    const double start = std::max(now_, flights_.empty() ? 0 : flights_.back().done);
    flights_.push_back({start, start + seconds});
  }

  void wait(int number) {
    if (number == 0) return;
    now_ = std::max(now_, flights_[static_cast<size_t>(number - 1)].done);
  }

  // Work on the compute lane, slowed down while a collective is in flight.
  void work(double seconds) {
    for (; next_ < flights_.size() && seconds > 0; ++next_) {
      const Flight& f = flights_[next_];
      if (f.done <= now_) continue;
      const double free = std::max(0.0, f.start - now_);
      if (seconds <= free) break;
      now_ += free;
      seconds -= free;
      const double most = (f.done - now_) * speed_;  // work that fits until it is done
      if (seconds < most) {
        now_ += seconds / speed_;
        return;
      }
      seconds -= most;
      now_ = f.done;
    }
    now_ += seconds;
  }

 private:
  struct Flight {
    double start, done;
  };
  const double speed_;
  double now_ = 0;
  std::vector<Flight> flights_;
  size_t next_ = 0;  // those before it are done
};

double* part_of(StepTimes* times, CostKind kind) {
  if (kind == CostKind::kProducts) return &times->products;
  return kind == CostKind::kAttention ? &times->attention : &times->memory;
}

}  // namespace

void StepTimes::add(const StepTimes& other) {
  products += other.products;
  attention += other.attention;
  memory += other.memory;
  gaps += other.gaps;
  in_line += other.in_line;
  waiting += other.waiting;
  lane += other.lane;
  step += other.step;
}

StepTimes simulate_list(const std::vector<TimedNode>& nodes, const LaneRules& rules, bool is_last) {
  StepTimes times;
  Lanes lanes(rules.share);
  int posted = 0;
  for (const TimedNode& node : nodes) {
    ensure(node.wait_for <= posted, "a node waits for a collective that was not posted");
    lanes.wait(node.wait_for);
    const bool is_due = is_last || !node.last_pass_only;
    if (node.is_async) {
      const double seconds = is_due ? node.communication : 0;
      lanes.post(seconds);
      times.lane += seconds;
      ++posted;
    } else if (is_due) {
      *part_of(&times, node.work.kind) += node.work.seconds;
      times.gaps += rules.gap_s;
      times.in_line += node.communication;
      lanes.work(node.work.seconds + rules.gap_s + node.communication);
    }
  }
  lanes.wait(posted);
  times.step = lanes.now();
  times.waiting = std::max(0.0, times.step - times.computing() - times.in_line);
  return times;
}

}  // namespace weft
