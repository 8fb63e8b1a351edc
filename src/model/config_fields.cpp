// model/config_fields.cpp: bounded numbers, flags and words.
#include "model/config_fields.h"

#include <cmath>

#include "base/error.h"

namespace weft {

bool is_given(const Json& config, const char* key) {
  const Json* v = config.find(key);
  return v != nullptr && !v->is_null();
}

const Json* find_object(const Json& config, const char* key) {
  if (!is_given(config, key)) return nullptr;
  const Json* v = config.find(key);
  require(v->is_object(), "config.json: \"{}\" must be an object, got {}", key, v->dump());
  return v;
}

int64_t positive(const Json& config, const char* key, int64_t most) {
  const Json* v = config.find(key);
  require(v != nullptr, "config.json has no \"{}\"", key);
  require(v->is_int() && v->as_int() > 0 && v->as_int() <= most,
          "config.json: \"{}\" must be a positive whole number up to {}, got {}", key, most,
          v->dump());
  return v->as_int();
}

int64_t positive_or(const Json& config, const char* key, int64_t most, int64_t otherwise) {
  return is_given(config, key) ? positive(config, key, most) : otherwise;
}

int64_t at_least_zero_or(const Json& config, const char* key, int64_t most, int64_t otherwise) {
  const Json* v = config.find(key);
  return v != nullptr && *v == Json(0) ? 0 : positive_or(config, key, most, otherwise);
}

double number_or(const Json& config, const char* key, double otherwise) {
  const Json* v = config.find(key);
  if (v == nullptr || v->is_null()) return otherwise;
  require(v->is_number(), "config.json: \"{}\" must be a number, got {}", key, v->dump());
  require(std::isfinite(static_cast<float>(v->as_number())),
          "config.json: \"{}\" must be a number in fp32's range, got {}", key, v->dump());
  return v->as_number();
}

// 0 or less would produce NaN: the root of zero, a power of a negative number. Kernels use fp32, in
// which 1e-60 is 0.
double above_zero_or(const Json& config, const char* key, double otherwise) {
  const double v = number_or(config, key, otherwise);
  require(static_cast<float>(v) > 0, "config.json: \"{}\" must be above 0, got {}", key, v);
  return v;
}

bool flag_or(const Json& config, const char* key, bool otherwise) {
  const Json* v = config.find(key);
  if (v == nullptr || v->is_null()) return otherwise;
  require(v->is_bool(), "config.json: \"{}\" must be true or false, got {}", key, v->dump());
  return v->as_bool();
}

std::string word_or(const Json& config, const char* key, const std::string& otherwise) {
  const Json* v = config.find(key);
  if (v == nullptr || v->is_null()) return otherwise;
  require(v->is_string(), "config.json: \"{}\" must be a word, got {}", key, v->dump());
  return v->as_string();
}

const char* named(const Json& config, const char* key, const char* other) {
  return is_given(config, other) ? other : key;
}

Json with_defaults(Json config, std::initializer_list<std::pair<const char*, Json>> defaults) {
  for (const auto& [key, value] : defaults) {
    if (config.find(key) == nullptr) config.set(key, value);
  }
  return config;
}

void refuse_if_set(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* v = config.find(key);
    if (v == nullptr || v->is_null() || *v == Json(false)) continue;
    throw UserError(
        fmt::format("config.json: {} is {}, which is not built for this model", key, v->dump()),
        "set it to null, or to false, if the weights were trained without it");
  }
}

double initializer_or(const Json& config, const char* key, double otherwise) {
  const double v = number_or(config, key, otherwise);
  require(v >= 0, "config.json: \"{}\" is a standard deviation, at least 0; got {}", key, v);
  return v;
}

int64_t padding_id(const Json& config, int64_t vocab_size) {
  const Json* pad = config.find("pad_token_id");
  const int64_t id = pad != nullptr && pad->is_int() ? pad->as_int() : -1;
  require(id < vocab_size, "config.json: pad_token_id {} is not below vocab_size {}", id,
          vocab_size);
  return id;
}

int32_t decoder_start_id(const Json& config) {
  for (const char* key : {"decoder_start_token_id", "pad_token_id"}) {
    const Json* id = config.find(key);
    if (id == nullptr || !id->is_int() || id->as_int() < 0) continue;  // -1: none
    const int64_t vocab_size = positive(config, "vocab_size", kMostTokens);
    require(id->as_int() < vocab_size, "config.json: {} {} is not below vocab_size {}", key,
            id->as_int(), vocab_size);
    return static_cast<int32_t>(id->as_int());
  }
  throw UserError(
      "config.json: neither decoder_start_token_id nor pad_token_id is a token: there is none that "
      "an answer can begin with",
      "set decoder_start_token_id; the published T5 models have 0, their padding");
}

void check_parameter_count(double parameters, const std::string& sizes) {
  if (parameters <= kMostParameters) return;
  throw UserError(
      fmt::format("config.json: {} make {:.3g} parameters, more than weft's limit of {:.3g}", sizes,
                  parameters, kMostParameters),
      "no model is that large: look for a mistyped number in config.json");
}

}  // namespace weft
