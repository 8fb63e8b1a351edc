// text/added_tokens.h: tokens that are cut out of the text before it is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // left out by decode(skip_special)
  bool normalized = false;   // matched after normalization, in its own normalized form
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // strips the blanks before it
  bool rstrip = false;       // strips the blanks after it
  bool operator==(const AddedToken&) const = default;
};

// Searches for all tokens at once: the leftmost match, and of those the longest.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Calls piece(text, nullptr) for text between tokens (never empty) and piece(text, token).
  using Piece = std::function<void(std::string_view text, const AddedToken* token)>;
  void split(std::string_view text, const Piece& piece) const;

 private:
  struct Node {  // of a trie: children are a list of siblings
    unsigned char byte;
    int32_t sibling = -1, child = -1, token = -1;
  };
  struct Match {
    size_t length;
    int32_t token;  // -1: none
  };
  int32_t child_of(int32_t node, unsigned char byte) const;
  Match match(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_ = make_roots();
  static std::array<int32_t, 256> make_roots() {
    std::array<int32_t, 256> roots;
    roots.fill(-1);
    return roots;
  }
};

}  // namespace weft
