// tests/cmd/run_program.h: the program run as a user would, its output and exit code.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

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
  // Appended, not added up: g++ 12 warns of a copy out of bounds where it inlines the sum.
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

// Whether the program can compute on a GPU here.
inline bool weft_has_gpu() {
  return run_weft("doctor --json").out.find("\"capability\"") != std::string::npos;
}

}  // namespace weft::testing
