// text/json_scan.cpp: the cursor. Every read is within bounds; every error names the byte.
#include "text/json_scan.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/utf8.h"

namespace weft {

void JsonScan::fail(std::string_view wanted) const {
  throw UserError(fmt::format("{}: byte {}: {} wanted", what_, at_, wanted));
}

void JsonScan::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    at_++;
  }
}

char JsonScan::peek() {
  skip_blanks();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonScan::take(char c) {
  if (peek() != c) return false;
  at_++;
  return true;
}

void JsonScan::expect(char c) {
  if (!take(c)) fail(fmt::format("'{}'", c));
}

void JsonScan::expect_end() {
  if (peek() != '\0' || at_ < text_.size()) fail("the end");
}

bool JsonScan::next(bool& first, char close) {
  if (take(close)) {
    return false;
  }
  if (!first) expect(',');
  first = false;
  return true;
}

std::string_view JsonScan::string() {
  expect('"');
  const size_t begin = at_;
  for (; at_ < text_.size(); at_++) {
    const char c = text_[at_];
    if (c == '"') {
      at_++;
      return text_.substr(begin, at_ - 1 - begin);
    }
    if (c == '\\') return string_with_escapes(begin);
    if (static_cast<unsigned char>(c) < 0x20) fail("no control character");
  }
  fail("the string's end");
}

uint32_t JsonScan::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++, at_++) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && (lower < 'a' || lower > 'f')) fail("a hexadecimal digit");
    value = value << 4 | static_cast<uint32_t>(digit ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

std::string_view JsonScan::string_with_escapes(size_t begin) {
  static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  unescaped_.assign(text_.substr(begin, at_ - begin));
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return unescaped_;
    if (static_cast<unsigned char>(c) < 0x20) fail("no control character");
    if (c != '\\') {
      unescaped_.push_back(c);
      continue;
    }
    const char escape = at_ < text_.size() ? text_[at_++] : '\0';
    if (const size_t i = kEscapes.find(escape); i != std::string_view::npos) {
      unescaped_.push_back(kMeanings[i]);
      continue;
    }
    if (escape != 'u') fail("an escape");
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") fail("the second half of a surrogate pair");
      at_ += 2;
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("the second half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      fail("no second half of a surrogate pair alone");
    }
    append_utf8(unescaped_, code);
  }
  fail("the string's end");
}

int64_t JsonScan::integer() {
  const bool negative = take('-');
  skip_blanks();
  int64_t value = 0;
  const size_t begin = at_;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; at_++) {
    if (at_ - begin >= 18) fail("a smaller number");
    value = value * 10 + (text_[at_] - '0');
  }
  if (at_ == begin) fail("a whole number");
  return negative ? -value : value;
}

std::string_view JsonScan::raw_value() {
  const char first = peek();
  const size_t begin = at_;
  if (first == '"') {
    string();
  } else if (first == '{' || first == '[') {
    int depth = 0;
    do {
      const char c = peek();
      if (c == '"') {
        string();
        continue;
      }
      if (c == '\0') fail("a closing bracket");
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      at_++;
    } while (depth > 0);
  } else {
    at_ = std::min(text_.find_first_of(",}] \n\r\t", at_), text_.size());
    if (at_ == begin) fail("a value");
  }
  return text_.substr(begin, at_ - begin);
}

}  // namespace weft
