// launch/fork.h: helpers around fork and exec, for ranks and other children.
//
// The child may make only async-signal-safe calls: another thread may hold any lock when we fork.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/stop.h"

namespace weft {

inline std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// Blocks the signals that we handle: our handlers must not run in the child.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    ::sigemptyset(&held);
    for (const int signal : kStopSignals) ::sigaddset(&held, signal);
    ::sigaddset(&held, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

// How the child treats the stop signals: as we did at our start (SIGHUP may be ignored), or it
// ignores them all.
enum class ChildSignals { kDefault, kIgnored };

// The first thing in the child: it dies with `parent`, has no handlers, and its own group, so that
// a signal from the terminal reaches only the parent, which forwards it once.
inline void begin_child(pid_t parent, const sigset_t& signals, ChildSignals stop) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    now.sa_flags = 0;
    if (stop == ChildSignals::kIgnored) now.sa_handler = SIG_IGN;
    if (now.sa_handler != SIG_IGN) now.sa_handler = SIG_DFL;
    ::sigaction(signal, &now, nullptr);
  }
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
}

}  // namespace weft
