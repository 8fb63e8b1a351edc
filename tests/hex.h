// tests/hex.h: bytes as text, to compare with those of other programs.
#pragma once

#include <string>
#include <string_view>

namespace weft::testing {

inline std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace weft::testing
