// cmd/text_input.h: text and tokenizers from the command line.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/logical.h"
#include "text/tokenizer.h"

namespace weft {

// `bytes`, a folder with tokenizer files, or any kind of model. `hint` says what to do where there
// are no such files: there is no run file in which to set data.tokenizer.
std::unique_ptr<Tokenizer> open_tokenizer(
    const std::string& name,
    const std::string& hint = "give a folder that has these files, or the word bytes");

// The tokenizer next to a model's weights.
std::unique_ptr<Tokenizer> tokenizer_beside(const LogicalModel& model, const std::string& hint);

// Invalid UTF-8 replaced; a warning names `what` where there was any.
std::string repaired(std::string text, const std::string& what);

// Both read to the end and repair invalid UTF-8. The path may name a pipe.
std::string read_standard_input();
std::string read_text_input(const std::string& path);

}  // namespace weft
