// model/overrides.cpp: number of layers and dropout.
#include "model/overrides.h"

#include "base/error.h"

namespace weft {

int64_t layers_in_force(int64_t configured, const ModelOverrides& overrides) {
  require(overrides.num_layers <= configured, "model.num_layers is {}, but the model has {} layers",
          overrides.num_layers, configured);
  return overrides.num_layers > 0 ? overrides.num_layers : configured;
}

double dropout_in_force(double configured, const char* key, const ModelOverrides& overrides) {
  const double rate = overrides.dropout.value_or(configured);
  if (rate >= 0 && rate < 1) return rate;
  const std::string where =
      overrides.dropout ? "model.dropout" : fmt::format("config.json: {}", key);
  throw UserError(fmt::format("{} is {}, wanted at least 0 and below 1", where, rate),
                  "set model.dropout: 0.0 to train without dropout");
}

}  // namespace weft
