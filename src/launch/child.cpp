// launch/child.cpp: fork and exec, then a wait that forwards signals.
#include "launch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/path.h"
#include "launch/fork.h"
#include "launch/signal_pipe.h"

extern char** environ;

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kChildPollMs = 100;  // also without a signal, in case one was lost

std::vector<std::string> environment_of(const ChildStart& start) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!start.env.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [key, value] : start.env) {
    if (!value.empty()) all.push_back(key + "=" + value);
  }
  return all;
}

// Only async-signal-safe calls (launch/fork.h).
[[noreturn]] void become_child(const char* program, char* const* argv, char* const* env,
                               pid_t parent, int log, int null) {
  sigset_t none;
  ::sigemptyset(&none);
  begin_child(parent, none, ChildSignals::kDefault);
  ::dup2(null, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execve(program, argv, env);
  ::_exit(127);
}

pid_t start_child(const ChildStart& start) {
  std::vector<std::string> argv = start.argv, env = environment_of(start);
  const std::vector<char*> argv_pointers = pointers(argv), env_pointers = pointers(env);
  const int log = open_plain_file(start.log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (log < 0)
    throw RunError(fmt::format("cannot write {}: {}", start.log.string(), std::strerror(errno)));
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = ::getpid();
  const HeldSignals held;
  const pid_t pid = ::fork();
  if (pid == 0)
    become_child(start.program.c_str(), argv_pointers.data(), env_pointers.data(), parent, log,
                 null);
  const int error = errno;
  ::close(log);
  ::close(null);
  if (pid < 0)
    throw RunError(fmt::format("cannot start {}: {}", start.argv[0], std::strerror(error)));
  return pid;
}

}  // namespace

ChildEnd run_child(const ChildStart& start) {
  ensure(!start.argv.empty(), "a child without arguments");
  SignalPipe signals;
  const pid_t pid = start_child(start);
  ChildEnd end;
  int status = 0;
  int64_t first_ms = 0;
  auto kill_at = Clock::time_point::max();
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    pollfd wanted{signals.fd(), POLLIN, 0};
    ::poll(&wanted, 1, kChildPollMs);
    for (const auto& [signal, at_ms] : signals.take()) {
      if (signal == SIGCHLD) continue;
      const bool is_first = end.stop_signal == 0;
      if (is_first) {
        end.stop_signal = signal;
        first_ms = at_ms;
        kill_at = Clock::now() + std::chrono::milliseconds(kStopMs);
        ::kill(pid, signal);
      } else if (is_urgent(signal) && at_ms - first_ms > kSameSignalMs) {
        ::kill(pid, SIGKILL);
      }
    }
    if (Clock::now() >= kill_at) ::kill(pid, SIGKILL);
  }
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace weft
