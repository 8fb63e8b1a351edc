// launch/whole_number.h: numbers in variables of the environment.
#pragma once

#include <charconv>
#include <cstring>
#include <optional>

namespace weft {

// Nothing where the text is anything but a number.
inline std::optional<int> whole_number(const char* text) {
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace weft
