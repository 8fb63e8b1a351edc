// launch/signal_pipe.cpp: a handler that writes which signal arrived, and when.
#include "launch/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace weft {
namespace {

// The handled ones: the stop signals, then SIGCHLD.
constexpr size_t kCount = std::size(kStopSignals) + 1;
int handled(size_t i) { return i + 1 < kCount ? kStopSignals[i] : SIGCHLD; }

std::atomic<int> signal_target{-1};

void pass_on(int number) {
  const int saved = errno;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const ArrivedSignal signal{number, int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000};
  [[maybe_unused]] const ssize_t put = ::write(signal_target.load(), &signal, sizeof signal);
  errno = saved;
}

}  // namespace

SignalPipe::SignalPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw RunError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  }
  read_ = ends[0];
  write_ = ends[1];
  ensure(signal_target.exchange(write_) == -1, "two jobs at once in one process");
  struct sigaction action {};
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (size_t i = 0; i < kCount; ++i) {
    ::sigaction(handled(i), nullptr, &before_[i]);
    const bool stays = handled(i) == SIGHUP && before_[i].sa_handler == SIG_IGN;
    if (!stays) ::sigaction(handled(i), &action, nullptr);
  }
}

SignalPipe::~SignalPipe() {
  for (size_t i = 0; i < kCount; ++i) ::sigaction(handled(i), &before_[i], nullptr);
  signal_target.store(-1);
  ::close(read_);
  ::close(write_);
}

std::vector<ArrivedSignal> SignalPipe::take() {
  std::vector<ArrivedSignal> signals;
  // Writes and reads this small are atomic.
  for (ArrivedSignal signal; ::read(read_, &signal, sizeof signal) == ssize_t{sizeof signal};)
    signals.push_back(signal);
  return signals;
}

}  // namespace weft
