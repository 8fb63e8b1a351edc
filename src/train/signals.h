// train/signals.h: stop signals (base/stop.h) ask the loop to save and end after the step.
#pragma once

#include <csignal>
#include <iterator>

#include "base/stop.h"

namespace weft {

class ShmWorld;

// What a process answers to a signal, after the signal's name.
struct StopWords {
  const char* early;
  const char* noted;
  const char* second;
  int second_exit;
};
inline constexpr StopWords kTrainWords{
    ": stopped before the first step, with nothing to save",
    ": finishing the current step, then saving",
    ", the second signal: ended at once; the newest checkpoint is where the run goes on",
    1};  // what was to be saved is not

// What the signals do while it lives. At first there is nothing to save, and one ends the process
// at once, whatever it is busy with. From hold() on the first is acknowledged and noted, for
// received() and stop_signal(); a second SIGINT or SIGTERM ends the process. They may be nested:
// when an inner one that had held is gone, the run has ended, and the outer one only says so.
// SIGHUP that was ignored (nohup) stays ignored. A rank ignores the signals: its supervisor passes
// them on through the world, and ends the rank where it had nothing to save.
class StopSignals {
 public:
  // world: a rank's; null: the signals of this process count. The words must outlive the process's
  // handlers: a constant.
  explicit StopSignals(const ShmWorld* world, const StopWords& words = kTrainWords);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void hold() const;
  // Others handle the signals from here on (launch/job.h); when ours are back, the run has ended.
  void hand_over() const;
  int received() const;  // 0: none; since hold()

 private:
  const ShmWorld* world_;
  const StopWords* words_before_;
  struct sigaction before_[std::size(kStopSignals)];
};

}  // namespace weft
