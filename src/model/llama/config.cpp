// model/llama/config.cpp: Llama 2 and 3: biases only where the configuration has them.
#include "model/llama/config.h"

#include "base/error.h"
#include "model/config_fields.h"
#include "model/layer_windows.h"

namespace weft {
namespace {

// transformers ignores them; whoever set them expects another model.
void refuse_windows(const Json& config, int64_t num_layers) {
  refuse_if_set(config, {"use_sliding_window"});
  layer_windows(config, num_layers, 0, [](int64_t) { return false; });
}

}  // namespace

DecoderConfig read_llama_config(const Json& config) {
  DecoderConfig c = read_decoder_config(config, "llama");
  c.qkv_bias = c.o_bias = flag_or(config, "attention_bias", false);
  c.mlp_bias = flag_or(config, "mlp_bias", false);
  refuse_windows(config, c.num_hidden_layers);
  return c;
}

}  // namespace weft
