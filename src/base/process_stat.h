// base/process_stat.h: what Linux says of a process of this machine (proc_pid_stat(5)).
#pragma once

#include <cstdint>
#include <optional>

namespace weft {

struct ProcessStat {
  char state = '?';         // R runs, S and D wait, T is stopped by a signal, Z and X have ended
  int64_t start_ticks = 0;  // since the machine's start: tells two processes with one number apart
};

// None where there is no such process.
std::optional<ProcessStat> read_process_stat(int pid);

}  // namespace weft
