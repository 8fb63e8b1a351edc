// model/config_fields.h: the fields of a config.json, read with bounds.
//
// UserError names the key that is missing or wrong. Where a field may be absent, null counts as
// absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/json.h"

namespace weft {

// Far beyond any existing model, and small enough that no byte count overflows 64 bits: a
// config.json beyond this is damaged, and must not be planned for minutes.
inline constexpr int64_t kMostLayers = 1024;  // planning time is quadratic in them: 2 s for 1024
inline constexpr int64_t kMostWidth = int64_t{1} << 20;  // hidden_size
inline constexpr int64_t kMostInner = int64_t{1} << 22;  // intermediate_size
inline constexpr int64_t kMostHeads = int64_t{1} << 16;
inline constexpr int64_t kMostTokens = int64_t{1} << 24;  // vocab_size
inline constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;
inline constexpr double kMostParameters = 0x1p44;

bool is_given(const Json& config, const char* key);  // neither absent nor null
// Null where it is not given; UserError where it is something else than an object.
const Json* find_object(const Json& config, const char* key);
int64_t positive(const Json& config, const char* key, int64_t most);
int64_t positive_or(const Json& config, const char* key, int64_t most, int64_t otherwise);
int64_t at_least_zero_or(const Json& config, const char* key, int64_t most, int64_t otherwise);
double number_or(const Json& config, const char* key, double otherwise);
// In fp32, which kernels use: 1e-60 counts as 0.
double above_zero_or(const Json& config, const char* key, double otherwise);
bool flag_or(const Json& config, const char* key, bool otherwise);
std::string word_or(const Json& config, const char* key, const std::string& otherwise);

// `other` where the file has it, else `key`: of two names of one field transformers takes the
// other.
const char* named(const Json& config, const char* key, const char* other);
// The configuration with the family's defaults of fields that are absent; null stays null.
Json with_defaults(Json config, std::initializer_list<std::pair<const char*, Json>> defaults);
// UserError naming the first key that is neither absent, null nor false: a feature that is not
// built.
void refuse_if_set(const Json& config, std::initializer_list<const char*> keys);

// A standard deviation, at least 0.
double initializer_or(const Json& config, const char* key, double otherwise);
// pad_token_id, -1 where there is none.
int64_t padding_id(const Json& config, int64_t vocab_size);
// What an encoder-decoder's decoder is fed first, in training and in generation:
// decoder_start_token_id, else pad_token_id. UserError where config.json has neither.
int32_t decoder_start_id(const Json& config);
// UserError where the weight matrices have more than kMostParameters elements; sizes: the fields
// that make the number, for the message.
void check_parameter_count(double parameters, const std::string& sizes);

}  // namespace weft
