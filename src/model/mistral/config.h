// model/mistral/config.h: the config.json of Mistral.
#pragma once

#include "model/decoder/config.h"

namespace weft {

DecoderConfig read_mistral_config(const Json& config);

}  // namespace weft
