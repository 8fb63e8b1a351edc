// model/t5/config.h: the config.json of T5, T5 v1.1 and flan-T5.
#pragma once

#include "base/json.h"
#include "model/model.h"

namespace weft {

struct T5Config {
  int64_t d_model = 0, d_kv = 0, d_ff = 0, num_heads = 0, vocab_size = 0;
  int64_t num_layers = 0, num_decoder_layers = 0;
  int64_t num_buckets = 32, max_distance = 128;
  int32_t start_id = 0;  // what the decoder is fed first
  double layer_norm_eps = 1e-6, initializer_factor = 1, dropout = 0.1;
  bool is_gated = false;           // v1.1: gelu(wi_0 x) * (wi_1 x); v1.0: relu(wi x)
  bool has_separate_head = false;  // v1.1: lm_head is not the embedding
  bool is_output_scaled = true;    // v1.0: the decoder's output times d_model^-0.5
};

// UserError names the field that is missing, wrong or not built.
T5Config read_t5_config(const Json& config, const ModelOverrides& overrides);

}  // namespace weft
