// model/decoder/rope.cpp: frequencies with the family's scaling, and the tables.
#include <algorithm>
#include <cmath>

#include "model/decoder/model.h"

namespace weft {

std::vector<double> rope_frequencies(const DecoderConfig& c) {
  constexpr double kTurn = 2 * 3.14159265358979323846;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    double f =
        1.0 / std::pow(c.rope.theta, static_cast<double>(2 * i) / static_cast<double>(c.head_dim));
    if (c.rope.type == "linear") f /= c.rope.factor;
    if (c.rope.type == "llama3") {
      // Short wavelengths stay, long ones are scaled by the factor, those between are blended.
      const double turns = c.rope.original_max_position_embeddings * f / kTurn;
      const double smooth = std::clamp(
          (turns - c.rope.low_freq_factor) / (c.rope.high_freq_factor - c.rope.low_freq_factor),
          0.0, 1.0);
      f = (1 - smooth) * f / c.rope.factor + smooth * f;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

void DecoderModel::fill_constants(const Graph& graph,
                                  const std::function<void*(const std::string&)>& data) const {
  const Shape& shape = graph[*graph.find("rope.cosine")].shape;
  auto* cosine = static_cast<float*>(data("rope.cosine"));
  auto* sine = static_cast<float*>(data("rope.sine"));
  const std::vector<double> frequencies = rope_frequencies(config_);
  for (int64_t t = 0; t < shape[0]; ++t) {
    for (int64_t i = 0; i < shape[1]; ++i) {
      // The angle is formed in fp32 as transformers does; its cosine then correctly rounded.
      const float angle =
          static_cast<float>(t) * static_cast<float>(frequencies[static_cast<size_t>(i)]);
      cosine[t * shape[1] + i] = static_cast<float>(std::cos(double{angle}));
      sine[t * shape[1] + i] = static_cast<float>(std::sin(double{angle}));
    }
  }
}

}  // namespace weft
