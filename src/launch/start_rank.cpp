// launch/start_rank.cpp: fork and exec, with only async-signal-safe calls between them.
#include "launch/start_rank.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "launch/fork.h"
#include "launch/rank_context.h"
#include "net/kept_lock.h"

extern char** environ;

namespace weft {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw RunError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
    ::fcntl(read, F_SETFL, O_NONBLOCK);
  }
};

std::vector<std::string> rank_environment(const RankStart& start) {
  std::vector<std::string> own = {fmt::format("{}={}", kRankVariable, start.rank),
                                  fmt::format("{}={}", kNumRanksVariable, start.num_ranks),
                                  fmt::format("{}={}", kThreadsVariable, start.threads),
                                  fmt::format("{}={}", kWorldFdVariable, start.world_fd)};
  if (start.slots_fd >= 0)
    own.push_back(fmt::format("{}={}", kSnapshotsFdVariable, start.slots_fd));
  if (start.lock_fd >= 0) own.push_back(fmt::format("{}={}", kLockFdVariable, start.lock_fd));
  for (const auto& [name, value] : start.env) own.push_back(name + "=" + value);
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool is_ours = false;
    for (const std::string& other : own) is_ours |= other.starts_with(name);
    if (!is_ours) all.push_back(text);
  }
  return all;
}

struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* env;
  pid_t parent;
  int world_fd, slots_fd, lock_fd, input, out, err;
  const cpu_set_t* cores;
  const sigset_t* signals;
};

// In one call, so that the lines of several ranks do not mix. strerror is not async-signal-safe.
[[noreturn]] void refuse_program(const char* program, int error) {
  const char* reason = ::strerrordesc_np(error);
  const char* const parts[] = {"error: the rank's program ", program, " cannot be executed: ",
                               reason != nullptr ? reason : "unknown error", "\n"};
  iovec line[std::size(parts)];
  for (size_t i = 0; i < std::size(parts); ++i)
    line[i] = {const_cast<char*>(parts[i]), std::strlen(parts[i])};
  [[maybe_unused]] const ssize_t put = ::writev(STDERR_FILENO, line, std::size(line));
  ::_exit(127);
}

// Only async-signal-safe calls (launch/fork.h).
[[noreturn]] void become_rank(const ChildPlan& plan) {
  begin_child(plan.parent, *plan.signals, ChildSignals::kIgnored);
  if (plan.cores != nullptr) ::sched_setaffinity(0, sizeof *plan.cores, plan.cores);
  ::dup2(plan.input, STDIN_FILENO);
  if (plan.out >= 0) ::dup2(plan.out, STDOUT_FILENO);
  if (plan.err >= 0) ::dup2(plan.err, STDERR_FILENO);
  ::fcntl(plan.world_fd, F_SETFD, 0);
  for (const int fd : {plan.slots_fd, plan.lock_fd}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
  }
  ::execve(plan.program, plan.argv, plan.env);
  refuse_program(plan.program, errno);
}

}  // namespace

StartedRank start_rank(const RankStart& start) {
  std::vector<std::string> argv = start.argv, env = rank_environment(start);
  const std::vector<char*> argv_pointers = pointers(argv), env_pointers = pointers(env);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : start.cores) CPU_SET(static_cast<size_t>(core), &cores);
  const int input = ::open(start.input.c_str(), O_RDONLY | O_CLOEXEC);
  if (input < 0)
    throw RunError(
        fmt::format("cannot open {}, a rank's input: {}", start.input, std::strerror(errno)));
  Pipe out, err;
  const HeldSignals held;
  const ChildPlan plan{start.program.c_str(),
                       argv_pointers.data(),
                       env_pointers.data(),
                       ::getpid(),
                       start.world_fd,
                       start.slots_fd,
                       start.lock_fd,
                       input,
                       start.pipe_output ? out.write : -1,
                       start.pipe_output ? err.write : -1,
                       start.cores.empty() ? nullptr : &cores,
                       &held.before()};
  const pid_t pid = ::fork();
  if (pid == 0) become_rank(plan);
  const int error = errno;
  for (const int fd : {input, out.write, err.write}) ::close(fd);
  if (pid > 0 && start.pipe_output) return {pid, out.read, err.read};
  ::close(out.read);
  ::close(err.read);
  if (pid < 0) throw RunError(fmt::format("cannot start a rank: {}", std::strerror(error)));
  return {pid, -1, -1};
}

}  // namespace weft
