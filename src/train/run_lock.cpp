// train/run_lock.cpp: flock on DIR/.lock, and the messages about storage that cannot be written.
#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/path.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_not_writable(int reason) {
  return reason == EROFS || reason == EACCES || reason == EPERM || reason == ENAMETOOLONG ||
         reason == ENOTDIR;
}

[[noreturn]] void fail(const fs::path& dir, int reason) {
  if (!is_not_writable(reason)) throw_refused("write into", dir, reason);
  throw UserError(fmt::format("cannot write into {}: {}", dir.string(), std::strerror(reason)),
                  "set storage to a folder that can be written, or give --run-dir");
}

// Ranks whose supervisor was killed need some milliseconds to exit.
bool lock_within_a_second(int fd) {
  using Clock = std::chrono::steady_clock;
  for (const auto deadline = Clock::now() + std::chrono::seconds(1);;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

int RunLock::open(const fs::path& dir) {
  std::error_code bad;
  fs::create_directories(dir, bad);
  if (bad) return bad.value();
  fd_ = ::open((dir / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (fd_ < 0) return errno;
  if (lock_within_a_second(fd_)) return 0;
  if (errno != EWOULDBLOCK) return errno;
  throw UserError(fmt::format("another process is training in {}", dir.string()),
                  "wait for it, stop it, or give this run another name or --run-dir");
}

RunLock::RunLock(const fs::path& dir) : RunLock() {
  if (const int reason = open(dir)) fail(dir, reason);
}

std::shared_ptr<RunLock> RunLock::try_on(const fs::path& dir) {
  std::shared_ptr<RunLock> lock(new RunLock());
  const int reason = lock->open(dir);
  if (reason == 0) return lock;
  if (!is_not_writable(reason)) fail(dir, reason);
  return nullptr;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

void check_length(const fs::path& dir) {
  constexpr size_t kMostBytes = 4096 - 128;  // PATH_MAX, less the run's own file names
  if (fs::absolute(dir).string().size() > kMostBytes) fail(dir, ENAMETOOLONG);
  for (const fs::path& part : dir) {
    if (part.string().size() > 255) fail(dir, ENAMETOOLONG);
  }
}

void check_can_write(const fs::path& dir) {
  fs::path above = fs::absolute(dir);
  while (above.has_relative_path() && path_kind(above) == PathKind::kNothing)
    above = above.parent_path();
  if (::access(above.c_str(), W_OK | X_OK) != 0) fail(dir, errno);
}

}  // namespace weft
