// model/rope.cpp: frequencies as transformers computes them.
#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"

namespace weft {

RopeConfig read_rope(const Json& config) {
  RopeConfig rope;
  // transformers 5 writes all of it into rope_parameters; 4 wrote rope_theta next to rope_scaling.
  const Json* fields = config.find("rope_parameters");
  if (fields == nullptr || !fields->is_object()) fields = config.find("rope_scaling");
  rope.theta = above_zero_or(config, "rope_theta", rope.theta);
  if (fields == nullptr || !fields->is_object()) return rope;
  rope.theta = above_zero_or(*fields, "rope_theta", rope.theta);
  const Json* type = fields->find("rope_type");
  if (type == nullptr) type = fields->find("type");
  if (type != nullptr && type->is_string()) rope.type = type->as_string();
  require(rope.type == "default" || rope.type == "linear" || rope.type == "llama3",
          "config.json: rope type \"{}\" is not built; supported: default, linear, llama3",
          rope.type);
  require(number_or(*fields, "partial_rotary_factor", 1) == 1,
          "config.json: partial_rotary_factor other than 1 is not built");
  if (rope.type == "default") return rope;
  require(fields->find("factor") != nullptr, "config.json: rope type {} needs \"factor\"",
          rope.type);
  rope.factor = above_zero_or(*fields, "factor", 1);
  rope.low_freq_factor = above_zero_or(*fields, "low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = number_or(*fields, "high_freq_factor", rope.high_freq_factor);
  rope.original_max_position_embeddings = above_zero_or(*fields, "original_max_position_embeddings",
                                                        rope.original_max_position_embeddings);
  require(rope.type != "llama3" || rope.high_freq_factor > rope.low_freq_factor,
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
