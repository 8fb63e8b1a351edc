// launch/signal_pipe.h: signals as bytes in a pipe, for a loop that polls.
#pragma once

#include <csignal>
#include <vector>

namespace weft {

// While it lives, SIGTERM, SIGINT and SIGCHLD come here, whichever thread they meet. One at a time.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  int fd() const { return read_; }
  std::vector<int> take();  // the signals since the last call; does not wait

 private:
  int read_ = -1, write_ = -1;
  struct sigaction before_[3];
};

}  // namespace weft
