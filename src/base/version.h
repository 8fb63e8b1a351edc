// base/version.h: weft's version number, which CMake reads from here, and what it was built from.
#pragma once

#include <string>

namespace weft {

inline constexpr const char* kWeftVersion = "0.1.0";

// Called once, by a program that knows the commit it was built from (cmd/version.cpp): a constant
// in this room would link every test program again after every commit.
void set_build_commit(const std::string& commit);
// Version and commit, as the processes of a run compare them: "0.1.0 5f3a9c01b2de". At most 32
// bytes: of a long commit (with a tag before it) the end, which tells builds apart.
std::string build_name();

}  // namespace weft
