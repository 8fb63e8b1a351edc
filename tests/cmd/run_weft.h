// tests/cmd/run_weft.h: runs commands as a user types them, and returns output and exit code.
#pragma once

#include <pty.h>

#include <string>

#include "tests/program.h"

namespace weft::testing {

// `words` as for the shell; `input` is its standard input.
inline Ended run_weft(const std::string& words, const std::string& input = "") {
  return run_to_end({"-c", std::string("exec '") + WEFT_PROGRAM + "' " + words},
                    {.input = input, .program = "/bin/sh"});
}

// What a user at a terminal would see: everything in `out`, as the terminal gets it.
inline std::string run_weft_on_terminal(const std::string& words) {
  const std::string command = std::string("exec '") + WEFT_PROGRAM + "' " + words + " < /dev/null";
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::string got;
  char piece[4096];
  for (ssize_t n; (n = ::read(terminal, piece, sizeof piece)) > 0;)
    got.append(piece, static_cast<size_t>(n));
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  // Line ends as they were before the terminal's driver.
  for (size_t at; (at = got.find("\r\n")) != std::string::npos;) got.erase(at, 1);
  return got;
}

// Whether the program can compute on a GPU here.
inline bool weft_has_gpu() { return contains(run_weft("doctor --json").out, "\"capability\""); }

}  // namespace weft::testing
