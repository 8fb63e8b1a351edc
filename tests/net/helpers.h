// tests/net/helpers.h: what tests of connections share.
#pragma once

#include <cstdint>
#include <string>

namespace weft::testing {

inline constexpr int64_t kLongMs = 20'000;

// The message of the Error that function throws; empty where it throws none.
template <typename Error, typename Function>
std::string complaint(const Function& function) {
  try {
    function();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace weft::testing
