// base/printable.cpp: character by character, escaping what a terminal would interpret.
#include "base/printable.h"

#include <fmt/core.h>

#include "base/utf8.h"

namespace weft {
namespace {

bool is_shown(const Utf8Char& c) {
  return c.valid && c.code >= 0x20 && (c.code < 0x7F || c.code > 0x9F);
}

bool is_shown_in_text(const Utf8Char& c) { return is_shown(c) || c.code == '\n' || c.code == '\t'; }

std::string byte_escapes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

// What is not shown(the character, the text behind it) is replaced by escape(the character, its
// bytes).
template <typename Shown, typename Escape>
std::string escaped(std::string_view text, const Shown& shown, const Escape& escape) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    const std::string_view bytes = text.substr(at, c.length);
    if (shown(c, text.substr(at + c.length))) {
      out += bytes;
    } else {
      out += escape(c, bytes);
    }
    at += c.length;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(
      text, [](const Utf8Char& c, std::string_view) { return is_shown_in_text(c); },
      [](const Utf8Char&, std::string_view bytes) { return byte_escapes(bytes); });
}

std::string printable_line(std::string_view text) {
  return escaped(
      text, [](const Utf8Char& c, std::string_view) { return is_shown(c); },
      [](const Utf8Char&, std::string_view bytes) { return byte_escapes(bytes); });
}

std::string printable_message(std::string_view text) {
  return escaped(
      text,
      [](const Utf8Char& c, std::string_view rest) {
        return c.code == '\n' ? rest.starts_with(' ') : is_shown(c);
      },
      [](const Utf8Char&, std::string_view bytes) { return byte_escapes(bytes); });
}

std::string printable_json(std::string_view json) {
  return escaped(
      json, [](const Utf8Char& c, std::string_view) { return is_shown_in_text(c); },
      [](const Utf8Char& c, std::string_view) { return fmt::format("\\u{:04x}", c.code); });
}

}  // namespace weft
