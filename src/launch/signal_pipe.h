// launch/signal_pipe.h: signals as records in a pipe, for a loop that polls.
#pragma once

#include <csignal>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/stop.h"

namespace weft {

struct ArrivedSignal {
  int number;
  int64_t at_ms;  // of CLOCK_MONOTONIC, when the handler ran: the loop may be late
};

// While it lives, it receives the stop signals (base/stop.h) and SIGCHLD, whichever thread they
// interrupt. An ignored SIGHUP (nohup) stays ignored. One at a time.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  int fd() const { return read_; }
  std::vector<ArrivedSignal> take();  // the signals since the last call; does not wait

 private:
  int read_ = -1, write_ = -1;
  struct sigaction before_[std::size(kStopSignals) + 1];
};

}  // namespace weft
