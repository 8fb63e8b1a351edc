// base/utf8.h: characters of a UTF-8 string, one at a time, and repair of invalid bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

constexpr uint32_t kReplacement = 0xFFFD;

struct Utf8Char {
  uint32_t code;  // kReplacement where the bytes are not a character
  uint32_t
      length;  // bytes consumed: at least 1; for bad bytes the maximal subpart, as WHATWG defines
  bool valid;
};

// The character at text[at], at < text.size(). Never reads past the end.
Utf8Char utf8_slow(std::string_view text, size_t at);

inline Utf8Char utf8_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  return utf8_slow(text, at);
}

void append_utf8(std::string& out, uint32_t code);

// Invalid UTF-8 replaced by U+FFFD (one per maximal bad subpart, as WHATWG defines); returns
// whether anything was replaced.
bool repair_utf8(std::string& text);

// How many bytes at the end are the beginning of a character that is not yet whole (0 to 3).
size_t utf8_incomplete_tail(std::string_view text);

}  // namespace weft
