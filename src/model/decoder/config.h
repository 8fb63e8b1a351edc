// model/decoder/config.h: the numbers of a decoder-only transformer of the Llama kind.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/family.h"
#include "model/rope.h"

namespace weft {

struct DecoderConfig {
  std::string family;
  int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6, initializer_range = 0.02;
  bool tie_word_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  int64_t pad_token_id = -1;
  double dropout = 0;                 // of attention's probabilities
  bool qk_norm = false;               // of every head of q and of k, before rope
  std::vector<int64_t> windows = {};  // of each layer, 0: none; empty: no layer has one
  RopeConfig rope;
};

// The fields that all of the kind share, in the spellings of transformers 4 and 5. UserError names
// the key that is missing, wrong or requires an unbuilt feature.
DecoderConfig read_decoder_config(const Json& config, const std::string& family);
// The same without rope and the activation.
DecoderConfig read_decoder_sizes(const Json& config, const std::string& family);
// The names that files of all families of the kind have; the head is not tied by default.
FamilyTraits decoder_traits();

}  // namespace weft
