// text/bpe_tokenizer.cpp: byte-level BPE: words of bytes, merged; decode: bytes joined.
#include <fmt/core.h>

#include "base/stop.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

class BpeTokenizer final : public PartsTokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts)
      : PartsTokenizer(std::move(parts)), word_end_(word_end_of(parts_.pattern)) {}

  std::string decode_next(Decoding& state, int32_t id) const override {
    return decode_bytes_next(state, text_of(id));
  }
  std::string decode_end(Decoding& state) const override { return decode_bytes_end(state); }
  std::string token_bytes(int32_t id) const override { return std::string(text_of(id)); }

  std::string describe() const override {
    const std::string normal = parts_.normalizer.describe();
    return fmt::format("byte-level BPE, {} words{}{}, {} ids, {} merges, {}",
                       pattern_name(parts_.pattern), normal.empty() ? "" : " after ", normal,
                       num_ids(), parts_.bpe->num_merges(), describe_special());
  }

 protected:
  void encode_words(std::string_view text, bool, std::vector<int32_t>& ids) const override {
    if (parts_.add_prefix_space && text[0] != ' ') {
      split(std::string(1, ' ').append(text), ids);
    } else {
      split(text, ids);
    }
  }

 private:
  void split(std::string_view text, std::vector<int32_t>& ids) const {
    if (!word_end_) {
      FalconCut cut(text);
      each_word(
          text, [&cut](std::string_view, size_t at) { return cut.word_end(at); }, ids);
    } else {
      each_word(text, word_end_, ids);
    }
  }

  template <typename End>
  void each_word(std::string_view text, End&& word_end, std::vector<int32_t>& ids) const {
    AbandonPoll poll;
    for (size_t at = 0; at < text.size(); poll.step()) {
      const size_t end = word_end(text, at);
      parts_.bpe->encode_word(text.substr(at, end - at), ids);
      at = end;
    }
  }

  WordEnd word_end_;  // null: Falcon's, which has a state
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace weft
