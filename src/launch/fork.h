// launch/fork.h: what is done around fork and exec, for ranks and for other children.
//
// In the child only async-signal-safe calls: another thread may have held any lock when we forked.
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

// While it lives, the signals that we handle wait: our handlers must not run in the child.
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

// What the child does with the stop signals: what we did at our start (SIGHUP may be ignored), or
// nothing, whoever sends them.
enum class ChildSignals { kDefault, kIgnored };

// The first thing in the child: it dies with `parent`, has no handlers, and its own group, so that
// a signal of the terminal reaches the parent alone, who passes it on once.
inline void begin_child(pid_t parent, const sigset_t& signals, ChildSignals stop) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
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
