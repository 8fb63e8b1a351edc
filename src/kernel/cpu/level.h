// kernel/cpu/level.h: which instruction levels this machine has.
#pragma once

#include <vector>

namespace weft {

// Names from the plainest level to the best; "ref" is not among them.
std::vector<const char*> available_levels();

}  // namespace weft
