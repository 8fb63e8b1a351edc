// tests/cmd/run_program.h: runs the program as a user would; its output and exit code.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/io/temporary_folder.h"

namespace weft::testing {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

// `words` as for the shell; `input` is its standard input.
inline Outcome run_weft(const std::string& words, const std::string& input = "") {
  const TemporaryFolder folder;
  std::ofstream(folder / "in", std::ios::binary) << input;
  const auto file = [&](const char* name) { return "'" + (folder / name).string() + "'"; };
  // Appended, not concatenated with +: g++ 12 warns of an out-of-bounds copy where it inlines that.
  std::string command = "'";
  command += WEFT_PROGRAM;
  command += "' " + words + " < " + file("in") + " > " + file("out") + " 2> " + file("err");
  const int status = std::system(command.c_str());
  const auto slurp = [&](const char* name) {
    std::ostringstream text;
    text << std::ifstream(folder / name, std::ios::binary).rdbuf();
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp("out"), slurp("err")};
}

// What a user at a terminal would see: everything in `out`, as the terminal gets it.
inline Outcome run_weft_on_terminal(const std::string& words) {
  const std::string command = std::string("exec '") + WEFT_PROGRAM + "' " + words + " < /dev/null";
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  Outcome got;
  char piece[4096];
  for (ssize_t n; (n = ::read(terminal, piece, sizeof piece)) > 0;)
    got.out.append(piece, static_cast<size_t>(n));
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  got.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  // Line ends as they were before the terminal's driver.
  for (size_t at; (at = got.out.find("\r\n")) != std::string::npos;) got.out.erase(at, 1);
  return got;
}

// Whether the program can compute on a GPU here.
inline bool weft_has_gpu() {
  return run_weft("doctor --json").out.find("\"capability\"") != std::string::npos;
}

}  // namespace weft::testing
