// tests/launch/variables.h: environment variables of tests, which are not those of the process.
#pragma once

#include <map>
#include <string>

namespace weft::testing {

using Variables = std::map<std::string, std::string>;

inline Variables with(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

// Reads them as getenv does those of the process.
inline auto reader_of(const Variables& set) {
  return [&set](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace weft::testing
