// track/memory.cpp: /proc/PID/status, read without allocating: our own is read every step.
#include "track/memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

namespace weft {
namespace {

// "VmHWM:     1234 kB"; 0 where the kernel does not report it.
int64_t status_bytes(const char* path, std::string_view key) {
  char buffer[8192];
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  if (size <= 0) return 0;
  const std::string_view text(buffer, static_cast<size_t>(size));
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return 0;
  const size_t digit = text.find_first_of("0123456789", at + key.size());
  if (digit == std::string_view::npos) return 0;
  int64_t kib = 0;
  std::from_chars(text.data() + digit, text.data() + text.size(), kib);
  return kib * 1024;
}

}  // namespace

int64_t peak_resident_bytes() { return status_bytes("/proc/self/status", "\nVmHWM:"); }
int64_t anonymous_resident_bytes() { return status_bytes("/proc/self/status", "\nRssAnon:"); }

ProcessMemory memory_of_process(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/status", pid);
  return {status_bytes(path.c_str(), "\nVmRSS:"), status_bytes(path.c_str(), "\nRssAnon:")};
}

}  // namespace weft
