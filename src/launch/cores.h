// launch/cores.h: the cores this process may use, and their division among ranks.
#pragma once

#include <vector>

namespace weft {

std::vector<int> usable_cores();

// Neighbouring cores for each rank; empty where there are more ranks than cores.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int num_ranks);

}  // namespace weft
