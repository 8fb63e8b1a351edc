// launch/first_agent.cpp: fork and exec of this program as an agent.
#include "launch/first_agent.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "launch/agent.h"
#include "launch/fork.h"
#include "net/kept_lock.h"

extern char** environ;

namespace weft {

FirstAgent::FirstAgent(std::vector<std::string> argv, const std::string& endpoint,
                       const std::string& secret_file, int lock_fd)
    : argv_(std::move(argv)), lock_fd_(lock_fd) {
  argv_.insert(argv_.end(), {"--join", endpoint, "--secret-file", secret_file});
  start();
}

FirstAgent::~FirstAgent() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // its ranks die with it
  ::waitpid(pid_, nullptr, 0);
}

void FirstAgent::start() {
  std::vector<std::string> argv = argv_, env = {fmt::format("{}=1", kFirstAgentVariable),
                                                fmt::format("{}={}", kRunPidVariable, ::getpid())};
  if (lock_fd_ >= 0) env.push_back(fmt::format("{}={}", kHeldLockVariable, lock_fd_));
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
  const std::vector<char*> argv_pointers = pointers(argv), env_pointers = pointers(env);
  const pid_t parent = ::getpid();
  const HeldSignals held;
  pid_ = ::fork();
  if (pid_ == 0) {
    begin_child(parent, held.before(), ChildSignals::kIgnored);
    if (lock_fd_ >= 0) ::fcntl(lock_fd_, F_SETFD, 0);
    ::execve("/proc/self/exe", argv_pointers.data(), env_pointers.data());
    ::_exit(127);  // the supervisor reports an agent that has not joined
  }
  if (pid_ < 0)
    throw RunError(fmt::format("cannot start this node's agent: {}", std::strerror(errno)));
}

void FirstAgent::kill(int64_t pid) {
  if (pid_ >= 0 && pid_ == pid) ::kill(pid_, SIGKILL);
}

bool FirstAgent::has_ended() {
  if (pid_ < 0) return true;
  if (::waitpid(pid_, nullptr, WNOHANG) == 0) return false;
  pid_ = -1;
  return true;
}

}  // namespace weft
