// text/split.cpp: the splitters. Terms of this file: a *letter* is \p{L}, a *number* \p{N}, a
// *blank* \s, a *sign* anything else; a *run* is a maximal sequence of one kind.
//
// A regular expression tries its alternatives in order and takes the first that matches, so each
// splitter tests in that order. The only backtracking is in the lookahead \s+(?!\S): a run of
// blanks before something visible leaves its last blank to the next word.
#include "text/split.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

constexpr uint8_t kSign = 32;     // in addition to UnicodeFlag
constexpr uint8_t kLineEnd = 64;  // \r \n
constexpr uint8_t kKinds = kLetter | kNumber | kSpace | kSign;

constexpr std::array<uint8_t, 128> make_ascii() {
  std::array<uint8_t, 128> flags{};
  for (size_t c = 0; c < 128; c++) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter)
      flags[c] = kLetter;
    else if (c >= '0' && c <= '9')
      flags[c] = kNumber;
    else if (c == ' ' || (c >= 9 && c <= 13))
      flags[c] = kSpace;
    else
      flags[c] = kSign;
  }
  flags['\r'] = flags['\n'] = kSpace | kLineEnd;
  return flags;
}
constexpr std::array<uint8_t, 128> kAscii = make_ascii();

struct Char {
  uint8_t kind;
  uint32_t length;
};

Char wide_char(std::string_view text, size_t at) {
  const Utf8Char c = utf8_slow(text, at);
  const uint8_t flags = unicode_flags(c.code) & (kLetter | kNumber | kSpace);
  return {flags ? flags : kSign, c.length};
}

inline Char char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) [[likely]]
    return {kAscii[byte], 1};
  return wide_char(text, at);
}

// The end of the run of `kind` (one or more flags) that begins at `at`; `at` where there is none.
inline size_t run_end(std::string_view text, size_t at, uint8_t kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (!(c.kind & kind)) break;
    at += c.length;
  }
  return at;
}

// At an apostrophe: the end of 's 't 're 've 'm 'll 'd, or `at`.
template <bool kAnyCase>
size_t contraction_end(std::string_view text, size_t at) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  const char second = letter(at + 2);
  if (second == 'e' && (first == 'r' || first == 'v')) return at + 3;
  if (second == 'l' && first == 'l') return at + 3;
  // The long s is an s when case is ignored.
  if (kAnyCase && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  return at;
}

// A run of blanks from `at`: all of it at the end of the text or where it is one blank; else all
// but its last, which goes with what follows.
size_t blanks_end(std::string_view text, size_t at) {
  size_t last = at, end = at;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (!(c.kind & kSpace)) break;
    last = end;
    end += c.length;
  }
  return end == text.size() || last == at ? end : last;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_word_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    const size_t end = contraction_end<false>(text, at);
    if (end > at) return end;
  }
  const size_t begin = text[at] == ' ' ? at + 1 : at;
  if (begin < text.size()) {
    const Char c = char_at(text, begin);
    const uint8_t kind = c.kind & kKinds;
    if (kind != kSpace) return run_end(text, begin + c.length, kind);
  }
  return blanks_end(text, at);
}

// A run of blanks that holds a line end reaches to its last line end.
size_t lines_or_blanks_end(std::string_view text, size_t at) {
  size_t line_end = at;
  for (size_t i = at; i < text.size();) {
    const Char c = char_at(text, i);
    if (!(c.kind & kSpace)) break;
    i += c.length;
    if (c.kind & kLineEnd) line_end = i;
  }
  return line_end > at ? line_end : blanks_end(text, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kDigits}| ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
template <int kDigits>
size_t cl100k_word_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    const size_t end = contraction_end<true>(text, at);
    if (end > at) return end;
  }
  const Char c = char_at(text, at);
  size_t next = at + c.length;
  if (c.kind & kLetter) return run_end(text, next, kLetter);
  if (c.kind & kNumber) {
    for (int i = 1; i < kDigits && next < text.size(); i++) {
      const Char d = char_at(text, next);
      if (!(d.kind & kNumber)) break;
      next += d.length;
    }
    return next;
  }
  if (!(c.kind & kLineEnd) && next < text.size()) {
    const Char d = char_at(text, next);
    if (d.kind & kLetter) return run_end(text, next + d.length, kLetter);
    if (text[at] == ' ' && (d.kind & kSign))
      return run_end(text, run_end(text, next, kSign), kLineEnd);
  }
  if (c.kind & kSign) return run_end(text, run_end(text, next, kSign), kLineEnd);
  return lines_or_blanks_end(text, at);
}

// What ends a BLOOM word besides blanks: ( | ) . , ! ? and five signs of other scripts.
bool is_bloom_sign(uint32_t code) {
  switch (code) {
    case '(':
    case '|':
    case ')':
    case '.':
    case ',':
    case '!':
    case '?':
    case 0x2026:  // …
    case 0x3002:  // 。
    case 0xFF0C:  // ，
    case 0x3001:  // 、
    case 0x0964:  // ।
    case 0x06D4:  // ۔
    case 0x060C:  // ،
      return true;
    default:
      return false;
  }
}

bool is_bloom_word(std::string_view text, size_t at) {
  const Utf8Char c = utf8_at(text, at);
  return !(unicode_flags(c.code) & kSpace) && !is_bloom_sign(c.code);
}

// " ?[^(\s|[.,!?…。，、।۔،])]+"; the text between two such words is a word too.
size_t bloom_word_end(std::string_view text, size_t at) {
  const auto begins = [&](size_t i) {
    if (text[i] == ' ') ++i;
    return i < text.size() && is_bloom_word(text, i);
  };
  if (begins(at)) {
    size_t end = text[at] == ' ' ? at + 1 : at;
    while (end < text.size() && is_bloom_word(text, end)) end += utf8_at(text, end).length;
    return end;
  }
  size_t end = at + utf8_at(text, at).length;
  while (end < text.size() && !begins(end)) end += utf8_at(text, end).length;
  return end;
}

// The byte symbols that count as numbers: the digits, and the bytes that stand for ² ³ ¹ ¼ ½ ¾.
bool is_number_symbol(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
         (byte >= 0xBC && byte <= 0xBE);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool has_three_digits(std::string_view text, size_t at, size_t end) {
  return at + 3 <= end && is_digit(text[at]) && is_digit(text[at + 1]) && is_digit(text[at + 2]);
}

size_t no_split(std::string_view text, size_t) { return text.size(); }

struct Known {
  SplitPattern pattern;
  std::string_view name, regex;
  WordEnd word_end;
};

constexpr Known kKnown[] = {
    {SplitPattern::kNone, "none", "", no_split},
    {SplitPattern::kGpt2, "GPT-2",
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     gpt2_word_end},
    {SplitPattern::kQwen2, "Qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cl100k_word_end<1>},
    {SplitPattern::kLlama3, "Llama-3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cl100k_word_end<3>},
    {SplitPattern::kBloom, "BLOOM", R"( ?[^(\s|[.,!?…。，、।۔،])]+)", bloom_word_end},
    {SplitPattern::kFalcon, "Falcon", "", nullptr},
};

const Known& known(SplitPattern pattern) { return kKnown[static_cast<size_t>(pattern)]; }

}  // namespace

WordEnd word_end_of(SplitPattern pattern) { return known(pattern).word_end; }
std::string_view pattern_name(SplitPattern pattern) { return known(pattern).name; }

// Punctuation runs; GPT-2's words; runs of number symbols and the text between them; then, within
// those, three digits at a time.
size_t FalconCut::word_end(size_t at) {
  if (at >= punctuation_end_) {
    const auto kind = [this](size_t i) {
      return shape_flags(utf8_at(text_, i).code) & kPunctuation;
    };
    const int first = kind(at);
    punctuation_end_ = at;
    while (punctuation_end_ < text_.size() && kind(punctuation_end_) == first)
      punctuation_end_ += utf8_at(text_, punctuation_end_).length;
  }
  if (at >= word_end_) word_end_ = gpt2_word_end(text_.substr(0, punctuation_end_), at);
  if (at >= digits_end_) {
    const bool first = is_number_symbol(text_[at]);
    digits_end_ = at + 1;
    while (digits_end_ < word_end_ && is_number_symbol(text_[digits_end_]) == first) ++digits_end_;
  }
  if (has_three_digits(text_, at, digits_end_)) return at + 3;
  size_t end = at + 1;
  while (end < digits_end_ && !has_three_digits(text_, end, digits_end_)) ++end;
  return end;
}

std::optional<SplitPattern> pattern_of_regex(std::string_view regex) {
  for (const Known& k : kKnown)
    if (!k.regex.empty() && k.regex == regex) return k.pattern;
  return std::nullopt;
}

}  // namespace weft
