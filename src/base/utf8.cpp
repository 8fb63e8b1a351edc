// base/utf8.cpp: the table of well-formed byte sequences (Unicode 3.9, table 3-7), as code.
#include "base/utf8.h"

#include <utility>

namespace weft {
namespace {

// What may follow a lead byte: how many bytes, and the bounds of the first of them. The bounds keep
// out overlong forms (E0, F0), surrogates (ED) and values above U+10FFFF (F4).
struct Lead {
  uint32_t following;
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char utf8_slow(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.following == 0) return {kReplacement, 1, false};
  uint32_t code = first & (0x3Fu >> lead.following);
  unsigned char low = lead.low, high = lead.high;
  for (uint32_t i = 1; i <= lead.following; i++) {
    if (at + i >= text.size()) return {kReplacement, i, false};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (byte < low || byte > high) return {kReplacement, i, false};
    code = code << 6 | (byte & 0x3Fu);
    low = 0x80, high = 0xBF;
  }
  return {code, lead.following + 1, true};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

size_t utf8_incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); back++) {
    const size_t at = text.size() - back;
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte & 0xC0) == 0x80) continue;
    const Utf8Char c = utf8_slow(text, at);
    const bool open = !c.valid && c.length == back && lead_of(byte).following >= back;
    return open ? back : 0;
  }
  return 0;
}

bool repair_utf8(std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid) break;
    at += c.length;
  }
  if (at == text.size()) return false;
  std::string repaired = text.substr(0, at);
  while (at < text.size()) {
    const Utf8Char c = utf8_at(text, at);
    append_utf8(repaired, c.code);
    at += c.length;
  }
  text = std::move(repaired);
  return true;
}

}  // namespace weft
