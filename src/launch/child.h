// launch/child.h: this program once more, with other words, run to its end.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct ChildStart {
  std::vector<std::string> argv;           // argv[0] is its name
  std::map<std::string, std::string> env;  // over ours; an empty value takes the variable away
  std::filesystem::path log;               // both of its outputs, written anew
  std::string program = "/proc/self/exe";
};

struct ChildEnd {
  int exit_code = 0;    // 128 + N where signal N ended it
  int stop_signal = 0;  // that we were sent meanwhile and passed on
};

// The first stop signal (base/stop.h) is passed on; kStopMs later, or at a second SIGINT or
// SIGTERM, the child is killed: whoever runs children needs nothing of one that was stopped. It
// dies with the thread that calls this.
inline constexpr int kStopMs = 700;
[[nodiscard]] ChildEnd run_child(const ChildStart& start);

}  // namespace weft
