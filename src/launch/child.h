// launch/child.h: runs this program again with other arguments, to its end.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct ChildStart {
  std::vector<std::string> argv;           // argv[0] is its name
  std::map<std::string, std::string> env;  // added to ours; an empty value unsets the variable
  std::filesystem::path log;               // stdout and stderr, truncated first
  std::string program = "/proc/self/exe";
};

struct ChildEnd {
  int exit_code = 0;    // 128 + N where signal N killed it
  int stop_signal = 0;  // that we received meanwhile and forwarded
};

// The first stop signal (base/stop.h) is forwarded; kStopMs later, or at a second SIGINT or
// SIGTERM, the child is killed: nothing is needed from a stopped child. It dies with the calling
// thread.
inline constexpr int kStopMs = 700;
[[nodiscard]] ChildEnd run_child(const ChildStart& start);

}  // namespace weft
