// text/unigram.h: the Unigram model: the segmentation of a word into pieces with the highest score.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace weft {

class Unigram {
 public:
  // scores[id] of every piece of the (plain) vocabulary. UserError where unk_id is not one of them.
  Unigram(Vocab vocab, std::vector<double> scores, int64_t unk_id, bool byte_fallback,
          const std::string& what);

  const Vocab& vocab() const { return vocab_; }
  // Appends the ids of a word (valid UTF-8). Adjacent characters that no piece covers are one
  // unknown. Thread-safe.
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Node {        // of the trie, a double array over bytes
    int32_t base = 0;  // children are at base ^ byte
    int32_t parent = -1;
    int32_t id = -1;  // of the piece that ends here
  };
  void build_trie(const std::string& what);
  size_t find_base(const std::vector<unsigned char>& labels);
  bool is_whole(std::string_view word, int32_t id) const;
  void search(std::string_view word, std::vector<int32_t>& ids) const;
  void put_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  Vocab vocab_;
  std::vector<double> scores_;
  int32_t unk_id_;
  double unk_score_;
  std::vector<int32_t> byte_ids_;  // of <0x00> to <0xFF>; empty: no fallback
  std::vector<Node> nodes_;
  size_t first_free_ = 1;

  // Whether a piece's best segmentation is the piece itself: 0 unknown, 1 yes, 2 no. Every thread
  // would write the same value, so relaxed order suffices.
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

// The id of "<0x0A>" and its like; -1 where there is none.
int32_t find_byte_token(const Vocab& vocab, unsigned char byte);

}  // namespace weft
