// base/stop.h: the signals that ask a run to end, and the word that long work looks at meanwhile.
//
// Work that may be abandoned (tokenization, evaluation, generation) polls stop_signal(). Whoever
// handles signals says where the word is (train/signals.h): in this process, or in the memory that
// a rank shares with its supervisor.
#pragma once

#include <atomic>
#include <csignal>
#include <string>

#include "base/error.h"

namespace weft {

// All of these save and end: a scheduler's warning and a closed terminal as well as SIGTERM.
inline constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

// A second one of these ends at once; of the others any number is as good as one.
inline bool is_urgent(int signal) { return signal == SIGTERM || signal == SIGINT; }
// `timeout` and some schedulers send a signal to the process and then to its group: two within this
// time are one.
inline constexpr int64_t kSameSignalMs = 50;

const char* signal_name(int signal);  // "SIGTERM"; async-signal-safe for kStopSignals

// "SIGTERM" and the text as one line on standard error, in place of a progress line.
// Async-signal-safe.
void write_signal_line(int signal, const char* text);

// The signal that asks this process to stop; 0: none.
int stop_signal();
// Where stop_signal() looks; null: nowhere. The word must stay until another is set.
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

inline void throw_if_stopped() {
  if (const int signal = stop_signal(); signal != 0) throw StopError(signal);
}

}  // namespace weft
