// net/kept_lock.cpp: descriptors through a socket pair.
#include "net/kept_lock.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

// One byte, and beside it one descriptor.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool send_descriptor(int socket, int fd) {
  DescriptorMessage sent;
  cmsghdr* part = CMSG_FIRSTHDR(&sent.message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  return ::sendmsg(socket, &sent.message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

// The last of those that wait there; -1: none.
int receive_descriptor(int socket) {
  for (int last = -1;;) {
    DescriptorMessage received;
    if (::recvmsg(socket, &received.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
      if (errno == EINTR) continue;
      return last;
    }
    const cmsghdr* part = CMSG_FIRSTHDR(&received.message);
    if (part == nullptr || part->cmsg_type != SCM_RIGHTS) continue;
    if (last >= 0) ::close(last);
    std::memcpy(&last, CMSG_DATA(part), sizeof last);
  }
}

int number_of(std::string_view digits) {  // -1: it is none
  int number = -1;
  const char* end = digits.data() + digits.size();
  const auto [rest, fault] = std::from_chars(digits.data(), end, number);
  return fault == std::errc{} && rest == end ? number : -1;
}

// The inherited end of the socket; -1: no supervisor started this process.
int inherited_socket() {
  const char* text = std::getenv(kLockFdVariable);
  if (text == nullptr) return -1;
  const int fd = number_of(text);
  struct stat info {};
  const bool is_socket = fd >= 0 && ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  require(is_socket, "{}={} is not an inherited socket; it is internal to weft", kLockFdVariable,
          text);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

bool is_same_file(int fd, const std::filesystem::path& file) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(file.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// A descriptor of the lock that whoever started this process holds; -1: there is none.
int inherited_lock() {
  const char* text = std::getenv(kHeldLockVariable);
  const int fd = text != nullptr ? number_of(text) : -1;
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

std::mutex g_mutex;
int g_own = -1;  // of this process's lock, guarded by g_mutex

}  // namespace

LockKeeper::LockKeeper() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw RunError(fmt::format("cannot create a pair of sockets: {}", std::strerror(errno)));
  ours_ = ends[0];
  theirs_ = ends[1];
  kept_ = inherited_lock();
}

LockKeeper::~LockKeeper() {
  for (const int fd : {ours_, theirs_, kept_}) {
    if (fd >= 0) ::close(fd);
  }
}

void LockKeeper::hand_on() {
  if (const int newer = receive_descriptor(ours_); newer >= 0) {
    if (kept_ >= 0) ::close(kept_);
    kept_ = newer;
  }
  if (kept_ >= 0 && !send_descriptor(ours_, kept_))
    log_warning("the run's lock could not be handed on: {}", std::strerror(errno));
}

void keep_lock(int fd) {
  const int socket = inherited_socket();
  if (socket < 0) return;
  const std::lock_guard lock(g_mutex);
  if (g_own >= 0) ::close(g_own);
  g_own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (!send_descriptor(socket, fd))
    log_warning("the supervisor could not be given the run's lock: {}", std::strerror(errno));
}

int take_kept_lock(const std::filesystem::path& file) {
  const int socket = inherited_socket();
  if (socket < 0) return -1;
  const std::lock_guard lock(g_mutex);
  if (const int sent = receive_descriptor(socket); sent >= 0) {
    if (g_own >= 0) ::close(g_own);
    g_own = sent;
  }
  if (g_own < 0 || !is_same_file(g_own, file)) return -1;
  return ::fcntl(g_own, F_DUPFD_CLOEXEC, 0);
}

pid_t run_pid() {
  const char* text = std::getenv(kRunPidVariable);
  const bool is_rank = text != nullptr && std::getenv(kLockFdVariable) != nullptr;
  const int pid = is_rank ? number_of(text) : -1;
  return pid > 0 ? pid : ::getpid();
}

}  // namespace weft
