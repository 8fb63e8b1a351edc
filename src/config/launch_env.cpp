// config/launch_env.cpp: which names are accepted, and which values are hidden.
#include "config/launch_env.h"

#include <stdlib.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/printable.h"

namespace weft {
namespace {

// docs/operate.md, Variables. Other names with WEFT_ are for weft's own processes.
constexpr const char* kOurs[] = {"WEFT_CACHE",  "WEFT_CACHE_MAX",       "WEFT_CPU_LEVEL",
                                 "WEFT_CUDNN",  "WEFT_STORAGE_RETRY_S", "WEFT_COMM",
                                 "WEFT_OVERLAP"};
constexpr const char* kSecrets[] = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"};

bool is_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

bool is_internal(std::string_view name) {
  return name.starts_with("WEFT_") &&
         std::find(std::begin(kOurs), std::end(kOurs), name) == std::end(kOurs);
}

}  // namespace

bool is_secret_name(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return std::any_of(std::begin(kSecrets), std::end(kSecrets),
                     [&](const char* word) { return upper.find(word) != std::string::npos; });
}

void check_launch_env(const std::map<std::string, std::string>& env,
                      std::vector<std::string>* complaints) {
  for (const auto& [name, value] : env) {
    const std::string shown = printable_line(name);
    if (!is_name(name))
      complaints->push_back(
          fmt::format("launch.env has the name \"{}\", wanted letters, digits and _, and no digit "
                      "first",
                      shown));
    else if (is_internal(name))
      complaints->push_back(
          fmt::format("launch.env has {}, which is internal to weft: leave it out", shown));
    else if (value.find('\0') != std::string::npos)
      complaints->push_back(
          fmt::format("launch.env: the value of {} has a zero byte, which no variable can", shown));
    else if (value == kHidden)
      complaints->push_back(
          fmt::format("launch.env: the value of {} was hidden when these keys were stored: leave "
                      "it out and set the variable in the environment of weft train",
                      shown));
  }
}

void apply_launch_env(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) {
    if (::setenv(name.c_str(), value.c_str(), 1) != 0)
      throw RunError(fmt::format("cannot set the variable {} of launch.env", name));
  }
}

}  // namespace weft
