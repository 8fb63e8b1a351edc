// base/version.cpp: the name of this build.
#include "base/version.h"

namespace weft {
namespace {

std::string& commit_text() {
  static std::string text;
  return text;
}

}  // namespace

void set_build_commit(const std::string& commit) { commit_text() = commit; }

std::string build_name() {
  constexpr size_t kMostBytes = 32;
  const std::string version = kWeftVersion, &commit = commit_text();
  if (commit.empty()) return version;
  const size_t left = kMostBytes - version.size() - 1;
  return version + " " + (commit.size() > left ? commit.substr(commit.size() - left) : commit);
}

}  // namespace weft
