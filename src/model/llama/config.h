// model/llama/config.h: the config.json of Llama 2 and 3.
#pragma once

#include "model/decoder/config.h"

namespace weft {

DecoderConfig read_llama_config(const Json& config);

}  // namespace weft
