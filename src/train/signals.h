// train/signals.h: stop signals (base/stop.h) ask the loop to save and end after the step.
#pragma once

#include <csignal>
#include <iterator>

#include "base/stop.h"

namespace weft {

class ShmWorld;

// What a process says to a signal, after the signal's name.
struct StopWords {
  const char* early = ": stopped before the first step, with nothing to save";
  const char* noted = ": finishing the running step, then saving";
  const char* second =
      ", the second signal: ended at once; the newest checkpoint is where the run goes on";
  int second_exit = 1;  // what was to be saved is not
};

// What the signals do while it lives. At first there is nothing to save, and one ends the process
// at once, whatever it is busy with. From hold() on the first is acknowledged and noted, for
// received() and stop_signal(); a second SIGINT or SIGTERM ends the process. SIGHUP that was
// ignored (nohup) stays ignored.
// Of a rank the signals are none of its business: its supervisor tells it through the world, and
// ends it where it had nothing to save.
class StopSignals {
 public:
  // world: a rank's; null: this process is told by the signals themselves.
  explicit StopSignals(const ShmWorld* world, const StopWords& words = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void hold() const;
  int received() const;  // 0: none; since hold()

 private:
  const ShmWorld* world_;
  StopWords words_before_;
  struct sigaction before_[std::size(kStopSignals)];
};

}  // namespace weft
