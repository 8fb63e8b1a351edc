// model/overrides.h: what a run file may change of a configuration, checked alike in every family.
#pragma once

#include "model/model.h"

namespace weft {

// The layers that the model has of those that are configured. UserError where it has fewer.
int64_t layers_in_force(int64_t configured, const ModelOverrides& overrides);

// The dropout of training. UserError outside of [0, 1): names model.dropout, or config.json's key
// where nothing overrides it.
double dropout_in_force(double configured, const char* key, const ModelOverrides& overrides);

}  // namespace weft
