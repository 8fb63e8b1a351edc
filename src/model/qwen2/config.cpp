// model/qwen2/config.cpp: Qwen2 and Qwen2.5: q, k and v always have a bias, nothing else has one.
#include "model/qwen2/config.h"

#include "model/config_fields.h"
#include "model/layer_windows.h"

namespace weft {

DecoderConfig read_qwen2_config(const Json& file) {
  const Json config = with_defaults(file, {{"max_position_embeddings", 32768}});
  DecoderConfig c = read_decoder_config(config, "qwen2");
  c.qkv_bias = true;
  c.windows = windows_of_later_layers(config, c.num_hidden_layers);
  return c;
}

}  // namespace weft
