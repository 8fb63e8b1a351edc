// text/charsmap.h: SentencePiece's precompiled character map, as the tokenizers package applies it.
//
// A blob: the bytes of a double-array trie, then texts that end in a zero byte. A *cluster* is a
// user-perceived character (a letter with its accents). A cluster of less than 6 bytes is replaced
// by the form of its shortest prefix in the trie; else each of its characters is mapped by itself.
// That drops an accent here and there; the package does the same, and ids must be equal.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class CharsMap {
 public:
  CharsMap(std::string_view blob, const std::string& what);  // UserError where it is damaged

  std::optional<std::string> apply(std::string_view text) const;  // none: unchanged

 private:
  std::optional<std::string_view> form_of(std::string_view chunk) const;
  void put_cluster(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> trie_;
  std::string texts_;
  std::array<bool, 128> plain_ascii_{};  // stays as it is
};

std::string decode_base64(std::string_view text, const std::string& what);

}  // namespace weft
