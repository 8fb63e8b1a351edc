// train/steps_in_flight.h: results of steps that a device is still working on.
//
// The host reads a step's results when it needs them, not when it has queued the step. On the CPU
// they are available at once.
#pragma once

#include <array>
#include <chrono>
#include <memory>

#include "base/exact_sum.h"
#include "exec/executor.h"
#include "exec/loss_sums.h"
#include "tensor/loss_scale.h"

namespace weft {

class StepsInFlight {
 public:
  static constexpr size_t kMost = 2;
  using Clock = std::chrono::steady_clock;

  explicit StepsInFlight(const Executor& executor);
  ~StepsInFlight();
  StepsInFlight(const StepsInFlight&) = delete;
  StepsInFlight& operator=(const StepsInFlight&) = delete;

  struct Started {  // what the host knows about a step when it is queued
    LossSums sums;  // the counts; the loss where it was summed over several ranks
    Clock::time_point begun;
  };
  struct Ended {
    Started started;
    ExactSum loss;  // of this rank
    double grad_norm;
    LossScale loss_scale;  // fp16: the next step's
  };
  void add(const Started& step);  // all work queued so far forms a step
  Ended take();                   // waits for the oldest
  bool is_empty() const { return taken_ == added_; }
  void drop() { taken_ = added_; }  // all of them, when no device works on them any more

 private:
  struct Results {  // as the device writes them
    ExactSum loss;
    double grad_norm;
    LossScale loss_scale;
  };
  Results* results(size_t step) const;

  Device* device_;
  const std::byte *loss_, *grad_norm_, *loss_scale_;
  std::byte* shared_;
  std::array<std::unique_ptr<Event>, kMost> done_;
  std::array<Started, kMost> started_{};
  size_t added_ = 0, taken_ = 0;
};

}  // namespace weft
