// model/gemma3_text/config.h: the config.json of Gemma 3's text models.
#pragma once

#include "model/decoder/config.h"
#include "model/model.h"

namespace weft {

struct Gemma3Config {
  DecoderConfig sizes;  // rope: of layers without a window
  RopeConfig local_rope;
  double attention_scale = 0;
  bool is_local(int64_t layer) const { return sizes.windows[static_cast<size_t>(layer)] > 0; }
};

// UserError names the field that is missing, wrong or not built.
Gemma3Config read_gemma3_config(const Json& config, const ModelOverrides& overrides);

}  // namespace weft
