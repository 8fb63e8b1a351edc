// model/bloom/config.h: the config.json of BLOOM and BLOOMZ.
#pragma once

#include "base/json.h"
#include "model/model.h"

namespace weft {

struct BloomConfig {
  int64_t hidden_size = 0, num_layers = 0, num_heads = 0, head_dim = 0, vocab_size = 0;
  double layer_norm_eps = 1e-5, initializer_range = 0.02;
  double hidden_dropout = 0, attention_dropout = 0;
  bool is_residual_normed = false;  // the residual stream is the norm's output
  bool tie_word_embeddings = true;
};

// UserError names the field that is missing, wrong or not built.
BloomConfig read_bloom_config(const Json& config, const ModelOverrides& overrides);

}  // namespace weft
