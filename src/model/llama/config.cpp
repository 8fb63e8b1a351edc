// model/llama/config.cpp: Llama 2 and 3: biases only where the configuration has them.
#include "model/llama/config.h"

namespace weft {

DecoderConfig read_llama_config(const Json& config) {
  DecoderConfig c = read_decoder_config(config, "llama");
  const auto flag = [&](const char* key) {
    const Json* v = config.find(key);
    return v != nullptr && v->is_bool() && v->as_bool();
  };
  c.qkv_bias = c.o_bias = flag("attention_bias");
  c.mlp_bias = flag("mlp_bias");
  return c;
}

}  // namespace weft
