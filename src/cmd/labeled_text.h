// cmd/labeled_text.h: tokens as text for people, what is learned of them in brackets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace weft {

// "Q: 1+1 ⟦2<|endoftext|>⟧": is_label(i) says so of token i. A character of several tokens stands
// where its last one does.
std::string labeled_text(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         const std::function<bool(size_t)>& is_label);

}  // namespace weft
