// text/normalizer.cpp: steps of plain replacement, and their chain.
#include "text/normalizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {

void Normalizer::add(std::string name, Step step) {
  add_bounded(std::move(name),
              [step = std::move(step)](std::string_view text, size_t) { return step(text); });
}

std::optional<std::string> Normalizer::apply(std::string_view text, size_t most) const {
  std::optional<std::string> held;
  for (const Named& step : steps_) {
    auto next = step.step(held ? std::string_view(*held) : text, most);
    if (!next) continue;
    held = std::move(next);
    if (held->size() <= most) continue;
    constexpr size_t kShown = 60;
    throw UserError(
        fmt::format("the tokenizer's normalizer \"{}{}\" expands the text too much: more "
                    "than {} bytes from {}",
                    step.name.substr(0, kShown), step.name.size() > kShown ? "..." : "", most,
                    text.size()),
        "a usual normalizer writes only a few bytes per byte: check tokenizer.json for damage");
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

Normalizer::BoundedStep replace_step(std::string from, std::string to) {
  return [from, to](std::string_view text, size_t most) -> std::optional<std::string> {
    size_t at = text.find(from);
    if (at == std::string_view::npos) return std::nullopt;
    std::string out;
    size_t copied = 0;
    for (; at != std::string_view::npos; at = text.find(from, copied)) {
      out.append(text, copied, at - copied).append(to);
      copied = at + from.size();
      if (out.size() > most) return out;
    }
    return out.append(text, copied);
  };
}

Normalizer::BoundedStep replace_blanks_step(std::string to) {
  return [to](std::string_view text, size_t most) -> std::optional<std::string> {
    size_t at = text.find("  ");
    if (at == std::string_view::npos) return std::nullopt;
    std::string out;
    size_t copied = 0;
    for (; at != std::string_view::npos; at = text.find("  ", copied)) {
      out.append(text, copied, at - copied).append(to);
      copied = std::min(text.find_first_not_of(' ', at), text.size());
      if (out.size() > most) return out;
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
