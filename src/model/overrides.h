// model/overrides.h: what a run file may override in a configuration, checked the same way in every
// family.
#pragma once

#include "model/model.h"

namespace weft {

// The number of layers to use of those configured. UserError where there are fewer.
int64_t layers_in_force(int64_t configured, const ModelOverrides& overrides);

// The dropout in training. UserError outside of [0, 1): names model.dropout, or config.json's key
// where nothing overrides it.
double dropout_in_force(double configured, const char* key, const ModelOverrides& overrides);

}  // namespace weft
