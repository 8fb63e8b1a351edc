// launch/memory_counts.h: the memory of a process and of a shared segment, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace weft {

struct PageCounts {
  int64_t resident_bytes = 0, anonymous_bytes = 0;
};
PageCounts count_pages(pid_t pid);  // zeros where it is gone

int64_t allocated_bytes(int fd);  // of a file in memory; 0: none

}  // namespace weft
