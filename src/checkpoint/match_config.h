// checkpoint/match_config.h: the tensors of a foreign file that a config.json requires.
#pragma once

#include "checkpoint/logical.h"

namespace weft {

// Of a file or another program's folder with a config.json: where its weights lie below a key, as
// in torch.save({"model": ..., "optimizer": ...}), what is below the key is the model, and the rest
// is dropped. UserError naming a tensor that config.json requires and that is not there. A model
// that weft does not know keeps all its tensors.
void match_config(LogicalModel& model);

}  // namespace weft
