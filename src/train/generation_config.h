// train/generation_config.h: where a trained model stops, in config.json and
// generation_config.json.
//
// Other programs know the end of an answer by eos_token_id alone. Training adds the tokens at which
// what it learned ends: the end of an assistant's turn, and the end of sequence after an answer.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/session.h"

namespace weft {

// config.json of the trained model. Weights that begin at random have learned the tokenizer's end
// of sequence and no other: eos_token_id becomes that, unless it names special tokens of it.
Json saved_config(const Session& session);

// The bytes of generation_config.json: the folder's own where nothing is to be added, absent where
// config.json alone says it all. Other keys stay as they are. UserError where the folder's is not
// valid.
std::optional<std::string> saved_generation_config(const Session& session);

}  // namespace weft
