// tests/faults/preload.h: the environment in which a started program's system calls fail.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace weft::testing {

// Built next to the program; CMake makes every test program that starts weft depend on it. There is
// none in sanitizer builds, whose own libraries must come first.
inline std::filesystem::path fault_library() {
  return std::filesystem::path(WEFT_PROGRAM).parent_path() / "tests/libweft_fault_preload.so";
}

// For StartOptions::env. The rules are explained in tests/faults/rules.h; a log lists which fired.
inline std::map<std::string, std::string> fault_env(const std::string& rules,
                                                    const std::filesystem::path& log = {}) {
  std::map<std::string, std::string> env = {{"LD_PRELOAD", fault_library().string()},
                                            {"WEFT_TEST_FAULTS", rules}};
  if (!log.empty()) env["WEFT_TEST_FAULTS_LOG"] = log.string();
  return env;
}

}  // namespace weft::testing
