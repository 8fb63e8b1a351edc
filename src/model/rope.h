// model/rope.h: rotary positions: their configuration, frequencies and tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace weft {

struct RopeConfig {
  double theta = 10000;
  std::string type = "default";  // default | linear | llama3
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  double original_max_position_embeddings = 0;  // llama3
};

// Of a config.json of transformers 4 or 5. UserError where its kind is not built, or where a field
// is wrong.
RopeConfig read_rope(const Json& config, int64_t max_position_embeddings);

// UserError where only a part of each head is rotated: not built. transformers' Llama ignores the
// field next to rope_parameters; whoever set it expects another model.
void refuse_partial_rope(const Json& fields);

// Angular frequencies (head_dim / 2) with the configured scaling.
std::vector<double> rope_frequencies(const RopeConfig& config, int64_t head_dim);

// Tables of (positions, head_dim / 2).
void fill_rope(const std::vector<double>& frequencies, int64_t positions, float* cosine,
               float* sine);

}  // namespace weft
