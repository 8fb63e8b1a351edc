// text/vocab.h: tokens and their ids, looked up by the bytes that they stand for.
//
// A token whose characters are all in the byte alphabet is stored as bytes, in an open-addressing
// table of 16 bytes per entry; the entry of a token up to 8 bytes long holds the bytes themselves,
// so that the usual word is found with one memory access. Other tokens (which merging can never
// produce) are stored separately as text. A *plain* vocabulary (SentencePiece's) stores all tokens
// unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft {

constexpr int32_t kMaxTokenId = (1 << 22) - 2;  // the pair table packs an id into 22 bits

class Vocab {
 public:
  enum class Form { kByteSymbols, kPlain };
  explicit Vocab(Form form = Form::kByteSymbols) : form_(form) {}

  // UserError (naming `what`) where the id is out of range, or the token or the id exists already.
  void add(std::string_view text, int64_t id, std::string_view what);
  void reserve(size_t num_tokens, size_t num_bytes);

  int32_t find_bytes(std::string_view bytes) const;  // -1: none
  int32_t find_text(std::string_view text) const;    // in symbols of the byte alphabet; -1: none

  // The bytes that the id decodes to; none where there is no such id.
  std::optional<std::string_view> bytes(int32_t id) const;

  int32_t num_ids() const { return static_cast<int32_t>(tokens_.size()); }  // largest id + 1
  size_t size() const { return num_tokens_; }

 private:
  struct Entry {
    uint64_t key;  // the bytes, zero-filled, up to 8 of them; else their hash
    int32_t id;    // -1: free
    uint32_t length;
  };
  struct Token {
    uint32_t begin = 0;  // in arena_
    uint32_t length = kAbsent;
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;

  static uint64_t key_of(std::string_view bytes);
  size_t place_of(uint64_t key, uint32_t length) const;
  bool is_token(const Entry& entry, uint64_t key, std::string_view bytes) const;
  bool insert_bytes(std::string_view bytes, int32_t id);
  void grow(size_t num_entries);

  Form form_;
  std::string arena_;
  std::vector<Token> tokens_;   // by id
  std::vector<Entry> entries_;  // a power of two; at most two thirds full
  int shift_ = 64;              // 64 less the logarithm of their number
  size_t num_in_entries_ = 0;
  size_t num_tokens_ = 0;
  std::unordered_map<std::string, int32_t> texts_;  // tokens outside the byte alphabet
};

}  // namespace weft
