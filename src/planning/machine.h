// planning/machine.h: what the operating system reports about this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct Machine {
  std::string cpu_model;
  int cores = 1;                          // that this process may use
  std::vector<std::string> cpu_features;  // those that a kernel could use
  int64_t memory_bytes = 0, available_bytes = 0;
  std::string huge_pages;         // "always", "madvise", "never", or "unknown"
  std::vector<std::string> gpus;  // models, as the driver names them
};

// From /proc and /sys; what cannot be read stays empty.
Machine read_machine();

// The pieces, from the text of /proc/cpuinfo.
std::string parse_cpu_model(const std::string& cpuinfo);
std::vector<std::string> parse_cpu_features(const std::string& cpuinfo);

}  // namespace weft
