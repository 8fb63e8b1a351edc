// train/signals.h: SIGTERM and SIGINT ask the loop to save and end after the step.
#pragma once

namespace weft {

// While it lives, the first signal is noted and a second one ends the process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int received() const;  // 0: none
};

}  // namespace weft
