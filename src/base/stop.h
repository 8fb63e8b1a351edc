// base/stop.h: the signals that ask a run to end, and the flag that long-running work polls.
//
// Work that may be abandoned (tokenization, evaluation, generation) polls stop_signal(). The signal
// handler's owner sets where the flag lives (train/signals.h): in this process, or in the memory
// that a rank shares with its supervisor.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace weft {

// All of these save and end: a scheduler's warning and a closed terminal as well as SIGTERM.
inline constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

// A second one of these ends at once; the others may repeat without effect.
inline bool is_urgent(int signal) { return signal == SIGTERM || signal == SIGINT; }
// `timeout` and some schedulers send a signal to the process and then to its group: two within this
// time count as one.
inline constexpr int64_t kSameSignalMs = 50;

const char* signal_name(int signal);  // "SIGTERM"; async-signal-safe for kStopSignals

// "SIGTERM" and the text as one line on standard error, in place of a progress line.
// Async-signal-safe.
void write_signal_line(int signal, const char* text);

// The signal that asks this process to stop; 0: none.
int stop_signal();
// Where stop_signal() looks; null: nowhere. The flag must outlive its use.
void watch_stop_word(const std::atomic<int>* word);

// Work that was abandoned because of the signal.
class StopError : public Error {
 public:
  explicit StopError(int signal)
      : Error(std::string("stopped by ") + signal_name(signal), "", 128 + signal),
        signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

// Sets the flag that cancels this thread's work while in scope. Without the flag, a single long row
// could delay the end of a run by seconds.
class ScopedAbandon {
 public:
  explicit ScopedAbandon(const std::atomic<bool>& flag);
  ~ScopedAbandon();
  ScopedAbandon(const ScopedAbandon&) = delete;
  ScopedAbandon& operator=(const ScopedAbandon&) = delete;
};

// Checks the flag on every 1,024th call. Throws StopError(0) where the flag is set.
class AbandonPoll {
 public:
  void step() {
    if (++count_ % 1024 == 0) throw_if_abandoned();
  }

 private:
  static void throw_if_abandoned();
  uint32_t count_ = 0;
};

inline void throw_if_stopped() {
  if (const int signal = stop_signal(); signal != 0) throw StopError(signal);
}

}  // namespace weft
