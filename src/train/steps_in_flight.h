// train/steps_in_flight.h: results of steps that a device is still working on.
#pragma once

#include <array>
#include <memory>

#include "base/exact_sum.h"
#include "exec/executor.h"
#include "tensor/loss_scale.h"

namespace weft {

class StepsInFlight {
 public:
  static constexpr size_t kMost = 2;  // in flight

  explicit StepsInFlight(const Executor& executor);
  ~StepsInFlight();
  StepsInFlight(const StepsInFlight&) = delete;
  StepsInFlight& operator=(const StepsInFlight&) = delete;

  struct Counts {
    int64_t target_tokens, tokens, positions;
  };
  struct Ended {
    ExactSum loss;
    double grad_norm;
    Counts counts;
    LossScale loss_scale;  // fp16: the next step's
  };
  void add(const Counts& counts);  // all work queued so far forms a step
  Ended take();                    // waits for the oldest

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
  std::array<Counts, kMost> counts_{};
  size_t added_ = 0, taken_ = 0;
};

}  // namespace weft
