// cmd/labeled_text.h: tokens as text for people, with the labels in brackets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace weft {

// "Q: 1+1 ⟦2<|endoftext|>⟧": is_label(i): token i is a label. A character made of several tokens is
// placed at its last one.
std::string labeled_text(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         const std::function<bool(size_t)>& is_label);

}  // namespace weft
