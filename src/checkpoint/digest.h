// checkpoint/digest.h: a model as lines of hashes, the same for every stored layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/logical.h"

namespace weft {

struct ModelDigest {
  std::vector<std::string> lines;  // name [shape] dtype hash, by name
  std::string weights, states;     // hashes of the lines of each; states empty where there are none
};
ModelDigest digest_model(const LogicalModel& model);

}  // namespace weft
