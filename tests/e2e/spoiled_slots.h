// tests/e2e/spoiled_slots.h: damage to the snapshots that a supervisor or an agent keeps in memory.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft::testing {

// The segments with slots that the process has open: its own ranks' first, then the copies of
// another node's (net/snapshot_slots.cpp).
inline std::vector<std::string> slot_segments(pid_t pid) {
  std::map<int, std::string> found;
  std::error_code gone;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), gone)) {
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("weft-snapshots") !=
        std::string::npos)
      found[std::stoi(entry.path().filename())] = entry.path();
  }
  std::vector<std::string> all;
  for (const auto& [fd, path] : found) all.push_back(path);
  return all;
}

inline bool overwrite(const std::string& path, off_t at, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool is_done =
      fd >= 0 && ::pwrite(fd, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size());
  ::close(fd);
  return is_done;
}

// The texts that say where a rank's tensors are in its slots. Steps stay whole.
inline bool spoil_layouts(const std::string& segment, int num_ranks) {
  bool is_done = true;
  for (int r = 0; r < num_ranks; ++r)
    is_done = is_done && overwrite(segment, (off_t{64} << 20) * (r + 1), "no JSON");
  return is_done;
}

// The sizes of slots. Steps stay whole, and nothing can be read of them.
inline bool spoil_sizes(const std::string& segment, int num_ranks) {
  bool is_done = true;
  for (int r = 0; r < num_ranks; ++r)
    is_done = is_done && overwrite(segment, 64 + 192 * r, std::string(8, '\0'));
  return is_done;
}

}  // namespace weft::testing
