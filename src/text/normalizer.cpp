// text/normalizer.cpp: steps of plain replacement, and their chain.
#include "text/normalizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {

std::optional<std::string> Normalizer::apply(std::string_view text) const {
  std::optional<std::string> held;
  for (const Named& step : steps_) {
    if (auto next = step.step(held ? std::string_view(*held) : text)) held = std::move(next);
  }
  return held;
}

std::string Normalizer::describe() const {
  std::string out;
  for (const Named& step : steps_) out += (out.empty() ? "" : ", ") + step.name;
  return out;
}

Normalizer::Step prepend_step(std::string prefix) {
  return [prefix](std::string_view text) -> std::optional<std::string> {
    if (text.empty()) return std::nullopt;
    return std::string(prefix).append(text);
  };
}

Normalizer::Step replace_step(std::string from, std::string to) {
  return [from, to](std::string_view text) -> std::optional<std::string> {
    size_t at = text.find(from);
    if (at == std::string_view::npos) return std::nullopt;
    std::string out;
    size_t copied = 0;
    for (; at != std::string_view::npos; at = text.find(from, copied)) {
      out.append(text, copied, at - copied).append(to);
      copied = at + from.size();
    }
    return out.append(text, copied);
  };
}

Normalizer::Step replace_blanks_step(std::string to) {
  return [to](std::string_view text) -> std::optional<std::string> {
    size_t at = text.find("  ");
    if (at == std::string_view::npos) return std::nullopt;
    std::string out;
    size_t copied = 0;
    for (; at != std::string_view::npos; at = text.find("  ", copied)) {
      out.append(text, copied, at - copied).append(to);
      copied = std::min(text.find_first_not_of(' ', at), text.size());
    }
    return out.append(text, copied);
  };
}

Normalizer::Step strip_step(bool left, bool right) {
  return [left, right](std::string_view text) -> std::optional<std::string> {
    size_t begin = 0, end = 0, first = text.size();
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = utf8_at(text, at);
      if (!(unicode_flags(c.code) & kSpace)) {
        first = std::min(first, at);
        end = at + c.length;
      }
      at += c.length;
    }
    if (left) begin = first;
    if (!right || first == text.size()) end = text.size();
    if (first == text.size()) begin = left || right ? end : begin;
    if (begin == 0 && end == text.size()) return std::nullopt;
    return std::string(text.substr(begin, end - begin));
  };
}

}  // namespace weft
