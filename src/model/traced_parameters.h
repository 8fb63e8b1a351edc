// model/traced_parameters.h: a model's parameters, from its own code.
#pragma once

#include <functional>
#include <vector>

#include "model/model.h"

namespace weft {

// Those of the smallest trace: one source for names, shapes and order. `complete` adds to each how
// it may be cut, how it starts and where it is stored.
std::vector<ParameterSpec> traced_parameters(const Model& model,
                                             const std::function<void(ParameterSpec*)>& complete);

// Biases 0, weights of norms 1, matrices normal.
InitRule default_init(const ParameterSpec& spec, double std);

}  // namespace weft
