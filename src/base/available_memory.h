// base/available_memory.h: how much memory can still be allocated here, given the machine, the
// cgroups (containers, batch systems) and the process's limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Bytes that are left, and what limits them, worded for messages.
struct MemoryBound {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::string source;

  bool is_bounded() const { return bytes != std::numeric_limits<int64_t>::max(); }
};

// A field of /proc/meminfo or /proc/self/status, "MemAvailable:   1234 kB", in bytes.
std::optional<int64_t> parse_kib_field(std::string_view text, std::string_view key);

// For all processes of this machine together: the smallest of MemAvailable and what this process's
// cgroups leave, from its own up to the root. Swap does not count: training in swap crawls. Page
// cache counts as free, as in MemAvailable: the kernel drops it on demand. Tests replace "/" by
// `root`.
MemoryBound available_memory(const std::filesystem::path& root = "/");
// Only the cgroups' limits, version 1 and 2.
MemoryBound available_in_cgroups(const std::filesystem::path& root = "/");

// For this process, or a child that inherits its limits.
struct ProcessBounds {
  MemoryBound addresses;  // RLIMIT_AS (ulimit -v): all mappings, including shared memory
  MemoryBound data;       // RLIMIT_DATA (ulimit -d): private memory only
};
ProcessBounds available_to_process();

}  // namespace weft
