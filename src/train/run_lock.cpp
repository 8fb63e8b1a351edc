// train/run_lock.cpp: flock on DIR/.lock, and the messages about storage that cannot be written.
#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "net/kept_lock.h"

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
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (const auto deadline = now() + std::chrono::seconds(1);;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Of a mount whose server or kernel has no flock.
bool has_no_flock(int reason) {
  return reason == ENOLCK || reason == ENOSYS || reason == EOPNOTSUPP;
}

// "process PID on HOST", for the message of those who come second; a lock without it is as good.
void write_holder(int fd) {
  const std::string text = fmt::format("process {} on {}\n", run_pid(), host_name());
  if (::ftruncate(fd, 0) != 0) return;
  static_cast<void>(::pwrite(fd, text.data(), text.size(), 0) < 0);
}

std::string read_holder(int fd) {
  char text[400] = {};
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  const std::string line(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return line.substr(0, line.find('\n'));
}

LeasePlace lease_file(const fs::path& dir) {
  const fs::path file = dir / ".lease";
  return {dir.string(),
          [file]() -> std::optional<std::string> {
            if (path_kind(file) == PathKind::kNothing) return std::nullopt;
            return read_file(file);
          },
          [file](const std::string& text) { write_file_atomic(file, text); },
          [file] { fs::remove(file); }};
}

}  // namespace

bool is_on_network(const fs::path& dir) {
  constexpr uint32_t kMagics[] = {
      0x6969,      // NFS
      0x517B,      // SMB
      0xFF534D42,  // CIFS
      0xFE534D42,  // SMB 2
      0x65735546,  // FUSE
      0x0BD00BD0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x00C36400,  // Ceph
      0x5346414F,  // AFS
      0xAAD7AAEA,  // PanFS
  };
  struct statfs info {};
  if (::statfs(dir.c_str(), &info) != 0) return false;
  return std::find(std::begin(kMagics), std::end(kMagics), static_cast<uint32_t>(info.f_type)) !=
         std::end(kMagics);
}

int RunLock::open(const fs::path& dir, const SharedStorage& shared) {
  std::error_code bad;
  fs::create_directories(dir, bad);
  if (bad) return bad.value();
  fd_ = take_kept_lock(dir / ".lock");
  const bool is_kept = fd_ >= 0;
  if (!is_kept) fd_ = open_plain_file(dir / ".lock", O_CREAT | O_RDWR, 0666);
  if (fd_ < 0) return errno;
  const bool is_shared = shared.is_shared.value_or(is_on_network(dir));
  if (is_kept || lock_within_a_second(fd_)) {
    write_holder(fd_);
    keep_lock(fd_);
  } else if (errno == EWOULDBLOCK) {
    const std::string holder = read_holder(fd_);
    throw UserError(fmt::format("another process is training in {}{}", dir.string(),
                                holder.empty() ? "" : ": " + holder),
                    "wait for it, stop it, or give this run another name or --run-dir");
  } else if (!is_shared || !has_no_flock(errno)) {
    return errno;
  }
  if (is_shared) lease_ = std::make_unique<Lease>(lease_file(dir), shared.times);
  return 0;
}

RunLock::RunLock(const fs::path& dir, const SharedStorage& shared) : RunLock() {
  if (const int reason = open(dir, shared)) fail(dir, reason);
}

void RunLock::check() {
  if (lease_) lease_->check();
}

std::shared_ptr<RunLock> RunLock::try_on(const fs::path& dir) {
  std::shared_ptr<RunLock> lock(new RunLock());
  const int reason = lock->open(dir, {});
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
