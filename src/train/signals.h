// train/signals.h: SIGTERM and SIGINT ask the loop to save and end after the step.
#pragma once

namespace weft {

// What the signals do while it lives. At first there is nothing to save, and one ends the process
// at once, whatever it is busy with; from hold() on the first is noted, and a second one ends the
// process with exit code 1, since what was to be saved is not.
class StopSignals {
 public:
  // is_rank: a supervisor watches. It is told by the default action that this rank has not saved.
  explicit StopSignals(bool is_rank);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void hold() const;
  int received() const;  // 0: none; since hold()
};

}  // namespace weft
