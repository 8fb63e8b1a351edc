// launch/command_output.cpp: the program writes into memory files, so that nobody waits for a
// reader.
#include "launch/command_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "launch/fork.h"

extern char** environ;

namespace weft {
namespace {

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("weft-output", MFD_CLOEXEC)) {
    if (fd_ < 0) throw RunError(fmt::format("no memory for output: {}", std::strerror(errno)));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  std::string text() const {
    struct stat is {};
    ::fstat(fd_, &is);
    std::string all(static_cast<size_t>(is.st_size), '\0');
    const ssize_t got = ::pread(fd_, all.data(), all.size(), 0);
    all.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return all;
  }

 private:
  int fd_;
};

// Streams as given; signals as a program expects them, though we ignore some.
class SpawnPlan {
 public:
  SpawnPlan(int out, int err) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, err, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes_);
    sigset_t defaults;
    ::sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGXFSZ}) ::sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigdefault(&attributes_, &defaults);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int spawn(pid_t* pid, char* const* argv) const {
    return ::posix_spawnp(pid, argv[0], &actions_, &attributes_, argv, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

std::optional<CommandOutput> run_command(const std::vector<std::string>& argv) {
  const MemoryFile out, err;
  const SpawnPlan plan(out.fd(), err.fd());
  std::vector<std::string> words = argv;
  const std::vector<char*> word_pointers = pointers(words);
  pid_t pid = -1;
  const int error = plan.spawn(&pid, word_pointers.data());
  if (error == ENOENT) return std::nullopt;
  if (error != 0)
    throw RunError(fmt::format("cannot run {}: {}", argv.at(0), std::strerror(error)));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  CommandOutput output;
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  output.out = out.text();
  output.err = err.text();
  return output;
}

}  // namespace weft
