// text/bpe.h: byte-pair merging: a word's bytes, or its characters, to the ids of a vocabulary.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace weft {

// A merge: the pair (left, right), where it has the lowest rank in a word, becomes `merged`.
class Bpe {
 public:
  static constexpr uint32_t kMaxMerges = (1u << 20) - 1;  // the pair table packs a rank in 20 bits

  explicit Bpe(Vocab vocab);

  // A word that is a token becomes that token, whatever its merges would yield.
  void set_ignore_merges(bool ignore) { ignore_merges_ = ignore; }
  // Words begin as characters, not bytes (the vocabulary is plain): one that is not a token becomes
  // the tokens <0xHH> of its bytes, or unk_id (-1: nothing), once per run with fuse_unk.
  void set_characters(int32_t unk_id, bool fuse_unk, bool byte_fallback);
  void reserve(size_t num_merges);
  // In order of rank. The later rank of a duplicate pair wins, as in tokenizers.
  void add_merge(int32_t left, int32_t right, int32_t merged);

  const Vocab& vocab() const { return vocab_; }
  size_t num_merges() const { return merged_.size(); }
  bool has_all_bytes() const;
  // Whether no merge joins a mark (the character of `mark`) to another character before it, so that
  // a text can be cut before every run of marks.
  bool keeps_marks_first(std::string_view mark) const;

  // Appends the ids of a word. A byte that is not a token is dropped. Thread-safe.
  void encode_word(std::string_view bytes, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  uint32_t rank_of(uint32_t left, uint32_t right) const;
  void grow_pairs(size_t num_entries);
  bool merges_to_itself(std::string_view bytes, int32_t id) const;
  void merge(std::string_view bytes, std::vector<int32_t>& ids) const;
  template <typename Put>
  void first_symbols(std::string_view bytes, const Put& put) const;
  size_t merge_short(uint32_t* symbols, size_t count) const;
  void merge_long(std::vector<uint32_t> symbols, std::vector<int32_t>& ids) const;

  Vocab vocab_;
  bool ignore_merges_ = false, is_plain_ = false, fuse_unk_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_;  // of plain vocabularies: the tokens <0xHH>
  std::vector<uint64_t> pairs_;        // left << 42 | right << 20 | rank; all ones: free
  int shift_ = 64;                     // 64 less the logarithm of their number
  std::vector<int32_t> merged_;        // by rank

  // Whether merging a token's bytes yields that token: 0 unknown, 1 yes, 2 no. Every thread would
  // write the same value, so relaxed order suffices.
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace weft
