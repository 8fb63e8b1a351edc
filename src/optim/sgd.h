// optim/sgd.h: stochastic gradient descent with momentum, as torch.optim.SGD.
#pragma once

#include "optim/optimizer.h"

namespace weft {

extern const Optimizer kSgd;

}  // namespace weft
