// text/added_tokens.cpp: a trie over the tokens' bytes.
#include "text/added_tokens.h"

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

bool has_flag(std::string_view text, size_t at, UnicodeFlag flag) {
  const Utf8Char c = utf8_at(text, at);
  return c.valid && (unicode_flags(c.code) & flag);
}

size_t last_char(std::string_view text, size_t end) {  // where the character before `end` begins
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) at--;
  return at;
}

size_t blanks_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t at = last_char(text, end);
    if (!has_flag(text, at, kSpace)) break;
    end = at;
  }
  return end;
}

size_t spaces_end(std::string_view text, size_t at) {
  while (at < text.size() && has_flag(text, at, kSpace)) at += utf8_at(text, at).length;
  return at;
}

}  // namespace

int32_t AddedTokenFinder::child_of(int32_t node, unsigned char byte) const {
  int32_t child = node < 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte)
    child = nodes_[static_cast<size_t>(child)].sibling;
  return child;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  int32_t node = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = child_of(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      int32_t& first = node < 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].child;
      const Node fresh{byte, first, -1, -1};
      first = child;
      nodes_.push_back(fresh);
    }
    node = child;
  }
  int32_t& place = nodes_[static_cast<size_t>(node)].token;
  if (place >= 0) return;  // the first of equal patterns wins
  place = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::match(std::string_view text, size_t at) const {
  Match found{0, -1};
  int32_t node = -1;
  for (size_t i = at; i < text.size(); i++) {
    node = child_of(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) found = {i + 1 - at, token};
  }
  return found;
}

// As in tokenizers: a match that single_word rejects is skipped whole, and stripped blanks do not
// move the start of the next search.
void AddedTokenFinder::split(std::string_view text, const Piece& piece) const {
  size_t given = 0;  // text before it has been emitted
  for (size_t at = 0; at < text.size() && !empty();) {
    if (roots_[static_cast<unsigned char>(text[at])] < 0) {
      at++;
      continue;
    }
    const Match found = match(text, at);
    if (found.token < 0) {
      at++;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found.token)];
    size_t begin = at, end = at + found.length;
    at = end;
    const bool beside_word = (begin > 0 && has_flag(text, last_char(text, begin), kWord)) ||
                             (end < text.size() && has_flag(text, end, kWord));
    if (token.single_word && beside_word) continue;
    if (token.lstrip) begin = std::max(blanks_begin(text, begin), given);
    if (token.rstrip) end = spaces_end(text, end);
    if (given < begin) piece(text.substr(given, begin - given), nullptr);
    piece(text.substr(begin, end - begin), &token);
    given = end;
  }
  if (given < text.size()) piece(text.substr(given), nullptr);
}

}  // namespace weft
