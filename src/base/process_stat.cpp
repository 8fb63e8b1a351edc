// base/process_stat.cpp: fields 3 and 22 of /proc/PID/stat.
#include "base/process_stat.h"

#include <fmt/core.h>

#include <fstream>
#include <sstream>
#include <string>

namespace weft {

std::optional<ProcessStat> read_process_stat(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text, word;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  ProcessStat stat;
  words >> stat.state;
  constexpr int kState = 3, kStartTime = 22;
  for (int i = kState + 1; i < kStartTime; ++i) words >> word;
  if (!(words >> stat.start_ticks)) return std::nullopt;
  return stat;
}

}  // namespace weft
