// model/check_config.h: what every family rejects in a config.json.
#pragma once

#include "base/json.h"

namespace weft {

// Quantized weights, which would be read as garbage, and invalid token ids. UserError names the
// field.
void check_config_json(const Json& config);

}  // namespace weft
