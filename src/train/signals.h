// train/signals.h: stop signals (base/stop.h) ask the loop to save and end after the step.
#pragma once

#include <semaphore.h>

#include <csignal>
#include <iterator>

#include "base/stop.h"

namespace weft {

class ShmWorld;

// What a process prints on a signal, after the signal's name.
struct StopWords {
  const char* early;
  const char* noted;
  const char* second;
  int second_exit;
};
inline constexpr StopWords kTrainWords{
    ": stopped before the first step, with nothing to save",
    ": finishing the current step, then saving",
    ", the second signal: exiting at once; the run resumes from its newest checkpoint",
    1};  // nothing was saved

// What the signals do while it lives. At first there is nothing to save, and a signal ends the
// process at once, whatever it is doing. From hold() on the first is acknowledged and recorded, for
// received() and stop_signal(); a second SIGINT or SIGTERM ends the process. They may be nested:
// when an inner one that had held is destroyed, the run has ended, and the outer one only reports
// that. An ignored SIGHUP (nohup) stays ignored. A rank ignores the signals: its supervisor
// forwards them through the world, and kills the rank where it has nothing to save.
class StopSignals {
 public:
  // world: a rank's; null: this process's own signals. The texts must outlive the handlers: use a
  // constant.
  explicit StopSignals(const ShmWorld* world, const StopWords& words = kTrainWords);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void hold() const;
  // Others handle the signals from here on (launch/job.h); when ours are restored, the run has
  // ended.
  void hand_over() const;
  int received() const;  // 0: none; since hold()

  // After this call, a second SIGINT or SIGTERM posts `waiter` instead of ending the process. The
  // waiting thread records the end, and ends the process. A third signal ends the process in any
  // case, unless it is an echo of the second. Null: no waiter.
  static void record_second_by(sem_t* waiter);
  // Called by the waiting thread: ends the process with the exit code of a second signal.
  [[noreturn]] static void end_recorded();

 private:
  const ShmWorld* world_;
  const StopWords* words_before_;
  struct sigaction before_[std::size(kStopSignals)];
};

}  // namespace weft
