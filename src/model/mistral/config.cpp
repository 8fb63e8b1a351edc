// model/mistral/config.cpp: Mistral: all layers have the same window, or none has one.
#include "model/mistral/config.h"

#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/layer_windows.h"

namespace weft {

DecoderConfig read_mistral_config(const Json& file) {
  const Json config =
      with_defaults(file, {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}});
  DecoderConfig c = read_decoder_config(config, "mistral");
  const int64_t window = sliding_window_or(config, 4096);
  c.windows =
      layer_windows(config, c.num_hidden_layers, window, [&](int64_t) { return window > 0; });
  // transformers' class ignores layer_types; Ministral's alternates by them.
  const bool is_uniform = std::count(c.windows.begin(), c.windows.end(), window) ==
                          static_cast<int64_t>(c.windows.size());
  require(is_uniform, "config.json: layer_types that differ from sliding_window are not built");
  return c;
}

}  // namespace weft
