// model/qwen2/config.h: the config.json of Qwen2 and Qwen2.5.
#pragma once

#include "model/decoder/config.h"

namespace weft {

DecoderConfig read_qwen2_config(const Json& config);

}  // namespace weft
