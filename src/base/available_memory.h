// base/available_memory.h: how much memory may still be allocated here: by the machine, the cgroups
// (containers, batch systems) and the limits of a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Bytes that are left, and what bounds them, in words for messages.
struct MemoryBound {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::string source;

  bool is_bounded() const { return bytes != std::numeric_limits<int64_t>::max(); }
};

// A field of /proc/meminfo or /proc/self/status, "MemAvailable:   1234 kB", in bytes.
std::optional<int64_t> parse_kib_field(std::string_view text, std::string_view key);

// By all processes of this machine together: the smallest of MemAvailable and what the cgroups of
// this process leave, from its own up to the root. Swap does not count: training in it crawls.
// Pages of files that are cached do, as they do in MemAvailable: the kernel drops them when it
// needs to. `root` stands for "/" in tests.
MemoryBound available_memory(const std::filesystem::path& root = "/");
// Of the cgroups alone, version 1 and 2.
MemoryBound available_in_cgroups(const std::filesystem::path& root = "/");

// By this process, or one that it starts and that inherits its limits.
struct ProcessBounds {
  MemoryBound addresses;  // RLIMIT_AS (ulimit -v): all that is mapped, shared memory included
  MemoryBound data;       // RLIMIT_DATA (ulimit -d): private memory alone
};
ProcessBounds available_to_process();

}  // namespace weft
