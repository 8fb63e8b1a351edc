// model/qwen3/config.cpp: Qwen3: heads of q and k are normed, and have a width of their own.
#include "model/qwen3/config.h"

#include "model/config_fields.h"
#include "model/layer_windows.h"

namespace weft {

DecoderConfig read_qwen3_config(const Json& file) {
  const Json config = with_defaults(
      file, {{"num_key_value_heads", 32}, {"head_dim", 128}, {"max_position_embeddings", 32768}});
  DecoderConfig c = read_decoder_config(config, "qwen3");
  c.qk_norm = true;
  c.qkv_bias = c.o_bias = flag_or(config, "attention_bias", false);
  c.windows = windows_of_later_layers(config, c.num_hidden_layers);
  return c;
}

}  // namespace weft
