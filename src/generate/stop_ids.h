// generate/stop_ids.h: the tokens that end a continuation.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace weft {

// The tokenizer's end of sequence, and eos_token_id (a number or a list) of generation_config.json;
// where that file is absent (null) or silent, of config.json, as transformers does. Each once.
// UserError where the key holds something else.
std::vector<int32_t> find_stop_ids(const Tokenizer* tokenizer, const Json& config,
                                   const Json* generation_config);

}  // namespace weft
