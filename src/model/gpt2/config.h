// model/gpt2/config.h: the config.json of GPT-2.
#pragma once

#include "base/json.h"
#include "model/model.h"

namespace weft {

struct Gpt2Config {
  int64_t n_embd = 0, n_layer = 0, n_head = 0, n_inner = 0, n_positions = 0, vocab_size = 0;
  double layer_norm_epsilon = 1e-5, initializer_range = 0.02;
  double embd_pdrop = 0.1, attn_pdrop = 0.1, resid_pdrop = 0.1;
  bool has_exact_gelu = false;  // with erf; else with tanh
  bool scale_attn_weights = true;
  bool tie_word_embeddings = true;
  int64_t head_dim() const { return n_embd / n_head; }
};

// UserError names the field that is missing, wrong or not built.
Gpt2Config read_gpt2_config(const Json& config, const ModelOverrides& overrides);

}  // namespace weft
