// model/rope.cpp: frequencies as transformers computes them.
#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"

namespace weft {

namespace {

// transformers 5 writes all of it into rope_parameters; 4 wrote rope_theta next to rope_scaling,
// which transformers 5 prefers where a file has both.
Json read_fields(const Json& config) {
  const Json* scaling = find_object(config, "rope_scaling");
  const Json* parameters = find_object(config, "rope_parameters");
  if (scaling && !scaling->as_object().empty()) return *scaling;
  return parameters ? *parameters : Json(Json::Object{});
}

// transformers ignores nested parameters where the family's layers are all alike.
std::string read_type(const Json& fields) {
  for (const auto& [key, value] : fields.as_object()) {
    require(
        !value.is_object(),
        "config.json: rope_parameters of one type of layer (\"{}\") are not built for this model",
        key);
  }
  const std::string type = word_or(fields, "rope_type", word_or(fields, "type", "default"));
  require(type == "default" || type == "linear" || type == "llama3",
          "config.json: rope type \"{}\" is not built; supported: default, linear, llama3", type);
  return type;
}

double required_above_zero(const Json& fields, const char* key, const std::string& type) {
  require(is_given(fields, key), "config.json: rope type {} needs \"{}\"", type, key);
  return above_zero_or(fields, key, 1);
}

// Beyond it cosine and sine are NaN.
void check_angles(const RopeConfig& rope, int64_t positions) {
  const double frequency = std::max(1.0, 1 / rope.theta) / std::min(1.0, rope.factor);
  require(std::isfinite(static_cast<float>(frequency * static_cast<double>(positions))),
          "config.json: a rope_theta of {} with a factor of {} makes angles beyond fp32's range",
          rope.theta, rope.factor);
}

}  // namespace

void refuse_partial_rope(const Json& fields) {
  require(number_or(fields, "partial_rotary_factor", 1) == 1,
          "config.json: partial_rotary_factor other than 1 is not built");
}

RopeConfig read_rope(const Json& config, int64_t max_position_embeddings) {
  const Json fields = read_fields(config);
  RopeConfig rope;
  rope.theta = above_zero_or(fields, "rope_theta", above_zero_or(config, "rope_theta", rope.theta));
  rope.type = read_type(fields);
  refuse_partial_rope(config);
  refuse_partial_rope(fields);
  if (rope.type != "default") rope.factor = required_above_zero(fields, "factor", rope.type);
  check_angles(rope, max_position_embeddings);
  if (rope.type != "llama3") return rope;
  rope.low_freq_factor = required_above_zero(fields, "low_freq_factor", rope.type);
  rope.high_freq_factor = required_above_zero(fields, "high_freq_factor", rope.type);
  // Like transformers 5, prefers the field next to max_position_embeddings (as in Phi-3's files).
  constexpr const char* kOriginal = "original_max_position_embeddings";
  rope.original_max_position_embeddings =
      above_zero_or(is_given(config, kOriginal) ? config : fields, kOriginal,
                    static_cast<double>(max_position_embeddings));
  require(rope.high_freq_factor > rope.low_freq_factor,
          "config.json: rope high_freq_factor {} must exceed low_freq_factor {}",
          rope.high_freq_factor, rope.low_freq_factor);
  return rope;
}

std::vector<double> rope_frequencies(const RopeConfig& c, int64_t head_dim) {
  constexpr double kTurn = 2 * 3.14159265358979323846;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double f = 1.0 / std::pow(c.theta, static_cast<double>(2 * i) / static_cast<double>(head_dim));
    if (c.type == "linear") f /= c.factor;
    if (c.type == "llama3") {
      // Short wavelengths stay, long ones are scaled by the factor, those between are blended.
      const double turns = c.original_max_position_embeddings * f / kTurn;
      const double smooth = std::clamp(
          (turns - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor), 0.0, 1.0);
      f = (1 - smooth) * f / c.factor + smooth * f;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

void fill_rope(const std::vector<double>& frequencies, int64_t positions, float* cosine,
               float* sine) {
  const auto half = static_cast<int64_t>(frequencies.size());
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      // The angle is formed in fp32 as transformers does; its cosine then correctly rounded.
      const float angle =
          static_cast<float>(t) * static_cast<float>(frequencies[static_cast<size_t>(i)]);
      cosine[t * half + i] = static_cast<float>(std::cos(double{angle}));
      sine[t * half + i] = static_cast<float>(std::sin(double{angle}));
    }
  }
}

}  // namespace weft
