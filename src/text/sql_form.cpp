// text/sql_form.cpp: text to tokens, then tokens to text with the conditions in order.
#include "text/sql_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace weft {
namespace {

// Parentheses inside this many others are copied without looking for a WHERE in them.
constexpr int kMostNested = 64;
constexpr size_t kNone = SIZE_MAX;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_quote(char c) { return c == '\'' || c == '"' || c == '`'; }
char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool is_word(char c) {
  const char low = lower_ascii(c);
  return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

struct Token {
  std::string text;  // as it is printed
  bool is_quoted = false;
  size_t partner = kNone;  // of a parenthesis
};

class SqlTokens {
 public:
  explicit SqlTokens(std::string_view text) : text_(text) {}

  std::vector<Token> tokens() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_])) {
        ++at_;
      } else if (is_quote(text_[at_])) {
        read_quoted();
      } else if (is_word(text_[at_])) {
        read_word();
      } else {
        read_sign();
      }
    }
    while (!made_.empty() && !made_.back().is_quoted && made_.back().text == ";") made_.pop_back();
    return std::move(made_);
  }

 private:
  // The quote that ends the one at at_, past doubled ones; kNone: there is none.
  size_t find_end() const {
    const char quote = text_[at_];
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] != quote) continue;
      if (i + 1 == text_.size() || text_[i + 1] != quote) return i;
      ++i;
    }
    return kNone;
  }

  // A quote without an end is a sign of its own: byte 0, which pairs with no other.
  void read_quoted() {
    const char quote = text_[at_];
    const size_t end = find_end();
    if (end == kNone) {
      made_.push_back({std::string(1, '\0')});
      ++at_;
      return;
    }
    std::string text = "'";
    for (size_t i = at_ + 1; i < end; ++i) {
      text += text_[i];
      if (text_[i] == '\'' && quote != '\'') text += '\'';
      if (text_[i] == quote && quote != '\'') ++i;  // one of two
    }
    made_.push_back({text + "'", true});
    at_ = end + 1;
  }

  // O'Neal is one word, but N'text' is a word and a quoted text.
  bool is_apostrophe(size_t begin) const {
    if (text_[at_] != '\'' || at_ + 1 == text_.size() || !is_word(text_[at_ + 1])) return false;
    constexpr std::string_view kPrefixes = "benrux";
    return at_ > begin + 1 || kPrefixes.find(lower_ascii(text_[begin])) == std::string_view::npos;
  }

  void read_word() {
    const size_t begin = at_;
    std::string text;
    for (; at_ < text_.size() && (is_word(text_[at_]) || is_apostrophe(begin)); ++at_)
      text += lower_ascii(text_[at_]);
    made_.push_back({std::move(text)});
  }

  void read_sign() {
    constexpr std::array<std::string_view, 7> kPairs = {"<=", ">=", "<>", "!=", "==", "||", "::"};
    const std::string_view two = text_.substr(at_, 2);
    const bool is_pair = std::find(kPairs.begin(), kPairs.end(), two) != kPairs.end();
    made_.push_back({std::string(two.substr(0, is_pair ? 2 : 1))});
    at_ += is_pair ? 2 : 1;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Token> made_;
};

class Printer {
 public:
  explicit Printer(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    std::vector<size_t> open;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is(i, "(")) open.push_back(i);
      if (!is(i, ")") || open.empty()) continue;
      tokens_[i].partner = open.back();
      tokens_[open.back()].partner = i;
      open.pop_back();
    }
  }

  std::string print() {
    std::string text;
    print(0, tokens_.size(), 0, &text);
    return text;
  }

 private:
  bool is(size_t i, std::string_view text) const {
    return !tokens_[i].is_quoted && tokens_[i].text == text;
  }
  static void add(const std::string& part, std::string* text) {
    if (!text->empty() && !part.empty()) *text += ' ';
    *text += part;
  }

  // Tokens from begin to end, all of one level of parentheses.
  void print(size_t begin, size_t end, int level, std::string* text) {
    for (size_t i = begin; i < end;) {
      const bool is_where = is(i, "where");
      i = print_one(i, level, text);
      if (is_where) i = print_condition(i, end, level, text);
    }
  }

  // A token, or a parenthesis with its content; the next token.
  size_t print_one(size_t i, int level, std::string* text) {
    add(tokens_[i].text, text);
    const size_t close = tokens_[i].partner;
    if (close == kNone || close < i || level == kMostNested) return i + 1;
    std::string inner;
    print(i + 1, close, level + 1, &inner);
    add(inner, text);
    add(tokens_[close].text, text);
    return close + 1;
  }

  bool ends_condition(size_t i) const {
    constexpr std::array<std::string_view, 11> kClauses = {
        "having", "limit",     "offset",    "fetch", "union", "except",
        "window", "intersect", "returning", "where", ";"};
    if (is(i, "group") || is(i, "order")) return i + 1 < tokens_.size() && is(i + 1, "by");
    return std::any_of(kClauses.begin(), kClauses.end(), [&](auto word) { return is(i, word); });
  }

  // The conditions of a WHERE in alphabetical order; the token after them.
  size_t print_condition(size_t begin, size_t end, int level, std::string* text) {
    std::vector<std::string> parts(1);
    bool may_sort = level < kMostNested, is_range = false;
    int cases = 0;
    size_t i = begin;
    while (i < end && !ends_condition(i)) {
      const bool is_and = is(i, "and") && cases == 0;
      if (is(i, "case")) ++cases;
      if (is(i, "end") && cases > 0) --cases;
      if (is(i, "or") && cases == 0) may_sort = false;
      if ((is(i, "(") || is(i, ")")) && tokens_[i].partner == kNone) may_sort = false;
      if (is_and && !is_range) {
        parts.emplace_back();
        ++i;
        continue;
      }
      if (is_and) is_range = false;
      if (is(i, "between") && cases == 0) is_range = true;
      i = print_one(i, level, &parts.back());
    }
    if (may_sort && !is_range && cases == 0) std::sort(parts.begin(), parts.end());
    for (size_t p = 0; p < parts.size(); ++p) {
      if (p > 0) add("and", text);
      add(parts[p], text);
    }
    return i;
  }

  std::vector<Token> tokens_;
};

}  // namespace

std::string sql_form(std::string_view text) { return Printer(SqlTokens(text).tokens()).print(); }

}  // namespace weft
