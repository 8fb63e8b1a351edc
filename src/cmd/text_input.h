// cmd/text_input.h: text and tokenizers as the command line gives them.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace weft {

// `bytes`, a folder with tokenizer files, or whatever holds a model.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

// Invalid UTF-8 replaced; a warning names `what` where there was any.
std::string repaired(std::string text, const std::string& what);

std::string read_standard_input();  // to its end, repaired

}  // namespace weft
