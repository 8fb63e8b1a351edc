// launch/memory_counts.cpp: /proc/PID/statm and fstat.
#include "launch/memory_counts.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace weft {

PageCounts count_pages(pid_t pid) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  int64_t size = 0, resident = 0, shared = 0;  // proc_pid_statm(5)
  std::ifstream(fmt::format("/proc/{}/statm", pid)) >> size >> resident >> shared;
  return {resident * page, std::max<int64_t>(0, resident - shared) * page};
}

int64_t allocated_bytes(int fd) {
  constexpr int64_t kBlock = 512;  // of st_blocks, on every system
  struct stat info {};
  return fd >= 0 && ::fstat(fd, &info) == 0 ? kBlock * info.st_blocks : 0;
}

}  // namespace weft
