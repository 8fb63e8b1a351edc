// text/split.h: splits text as the known regular expressions do, without a regex engine.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace weft {

enum class SplitPattern {
  kNone,    // the text is one word
  kGpt2,    // GPT-2, and ByteLevel with use_regex
  kQwen2,   // Qwen2 to Qwen3: numbers digit by digit
  kLlama3,  // Llama 3 (cl100k): numbers by three digits
  kBloom,   // BLOOM: runs of characters that are neither blanks nor certain signs
  kFalcon,  // Falcon: punctuation apart, then as GPT-2, then digits by three
};

// Where the word that begins at text[at] ends; at < text.size(). The words concatenated are the
// text.
using WordEnd = size_t (*)(std::string_view text, size_t at);
WordEnd word_end_of(SplitPattern pattern);

std::string_view pattern_name(SplitPattern pattern);
// Falcon's four pre-tokenizers in sequence: each splits the words of the one before, so a word's
// end depends on the ends of the longer ones. Call for the words of one text, in order.
class FalconCut {
 public:
  explicit FalconCut(std::string_view text) : text_(text) {}
  size_t word_end(size_t at);

 private:
  std::string_view text_;
  size_t punctuation_end_ = 0, word_end_ = 0, digits_end_ = 0;
};

// The regular expression as tokenizer.json spells it; none where we do not support it.
std::optional<SplitPattern> pattern_of_regex(std::string_view regex);

}  // namespace weft
