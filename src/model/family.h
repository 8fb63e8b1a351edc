// model/family.h: the door of each family's folder.
#pragma once

#include "model/decoder/config.h"

namespace weft {

DecoderConfig read_llama_config(const Json& config);
DecoderConfig read_qwen2_config(const Json& config);

}  // namespace weft
