// base/stop.cpp: a pointer to the stop flag, and a line that a signal handler may write.
#include "base/stop.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft {
namespace {

std::atomic<const std::atomic<int>*> watched{nullptr};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler stores it");

thread_local const std::atomic<bool>* abandon_flag = nullptr;

}  // namespace

const char* signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "a signal";
  }
}

void write_signal_line(int signal, const char* text) {
  const int kept = errno;  // strtol and its like, which we may interrupt, check it
  char line[256];
  size_t size = 0;
  const auto add = [&](const char* part) {
    for (; *part != '\0' && size < sizeof line - 1; ++part) line[size++] = *part;
  };
  if (::isatty(STDERR_FILENO)) add("\r\x1b[K");  // an ioctl, in every libc that we know
  add(signal_name(signal));
  add(text);
  line[size++] = '\n';
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, line, size);
  errno = kept;
}

int stop_signal() {
  const std::atomic<int>* word = watched.load(std::memory_order_acquire);
  return word ? word->load(std::memory_order_relaxed) : 0;
}

void watch_stop_word(const std::atomic<int>* word) {
  watched.store(word, std::memory_order_release);
}

ScopedAbandon::ScopedAbandon(const std::atomic<bool>& flag) { abandon_flag = &flag; }
ScopedAbandon::~ScopedAbandon() { abandon_flag = nullptr; }

void AbandonPoll::throw_if_abandoned() {
  if (abandon_flag && *abandon_flag) throw StopError(0);
}

}  // namespace weft
