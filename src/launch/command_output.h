// launch/command_output.h: another program, run to its end for what it prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft {

struct CommandOutput {
  int exit_code = 0;  // 128 + N where signal N ended it
  std::string out, err;
};

// argv[0] is looked up on the PATH; none where it is not there. RunError where it cannot be run.
std::optional<CommandOutput> run_command(const std::vector<std::string>& argv);

}  // namespace weft
