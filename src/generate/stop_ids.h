// generate/stop_ids.h: the tokens that end a continuation, and those that belong to its text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace weft {

// The tokenizer's end of sequence, and eos_token_id (a number or a list) of generation_config.json;
// where that file is absent (null) or lacks it, of config.json, as transformers does. Each once.
// UserError where the key holds something else.
std::vector<int32_t> find_stop_ids(const Tokenizer* tokenizer, const Json& config,
                                   const Json* generation_config);
// The same with the generation_config.json of `folder`, where it has one.
std::vector<int32_t> read_stop_ids(const Tokenizer& tokenizer, const Json& config,
                                   const std::filesystem::path& folder);

// Moves texts that are special tokens from `stops` to `stop_ids`: a continuation's text never has
// them. UserError where a text has one among other tokens, or characters outside the vocabulary.
void move_special_stops(const Tokenizer& tokenizer, std::vector<std::string>* stops,
                        std::vector<int32_t>* stop_ids);

// False for stop tokens and for ids outside the tokenizer: a model may have more, as padding of its
// tables.
bool has_text(int32_t id, const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids);
// The text of a continuation: of the ids that have one, without special tokens.
std::string decode_continuation(const std::vector<int32_t>& ids, const Tokenizer& tokenizer,
                                const std::vector<int32_t>& stop_ids);

}  // namespace weft
