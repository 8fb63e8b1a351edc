// model/qwen3/config.h: the config.json of Qwen3.
#pragma once

#include "model/decoder/config.h"

namespace weft {

DecoderConfig read_qwen3_config(const Json& config);

}  // namespace weft
