// text/split.h: words, cut as the known regular expressions cut them, without a regex engine.
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
};

// Where the word that begins at text[at] ends; at < text.size(). The words put together are the
// text.
using WordEnd = size_t (*)(std::string_view text, size_t at);
WordEnd word_end_of(SplitPattern pattern);

std::string_view pattern_name(SplitPattern pattern);
// The regular expression as tokenizer.json spells it; nothing where it is none of ours.
std::optional<SplitPattern> pattern_of_regex(std::string_view regex);

}  // namespace weft
