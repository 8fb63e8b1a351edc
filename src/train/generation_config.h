// train/generation_config.h: where a trained model stops, in config.json and
// generation_config.json.
//
// Other programs recognize the end of an answer only by eos_token_id. Training adds the tokens that
// end what it learned: the end of an assistant's turn, and the end of sequence after an answer.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/session.h"

namespace weft {

// config.json of the trained model. Weights trained from random have learned only the tokenizer's
// end of sequence: eos_token_id becomes that, unless it names special tokens of it.
Json saved_config(const Session& session);

// The bytes of generation_config.json: the folder's own where nothing is added, absent where
// config.json alone suffices. Other keys are unchanged. UserError where the folder's is not valid.
std::optional<std::string> saved_generation_config(const Session& session);

}  // namespace weft
