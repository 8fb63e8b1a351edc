// track/memory.h: the memory of processes, as counted by the kernel.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace weft {

int64_t peak_resident_bytes();       // VmHWM: mapped files included
int64_t anonymous_resident_bytes();  // RssAnon: what we allocated, now

struct ProcessMemory {
  int64_t resident, anonymous;  // now; resident includes what it shares with others
};
ProcessMemory memory_of_process(pid_t pid);  // zeros where it is gone

}  // namespace weft
