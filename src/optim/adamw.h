// optim/adamw.h: AdamW, as torch.optim.AdamW.
#pragma once

#include "optim/optimizer.h"

namespace weft {

extern const Optimizer kAdamw;

}  // namespace weft
