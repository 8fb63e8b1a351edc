// launch/cores.cpp: sched_getaffinity, and equal shares.
#include "launch/cores.h"

#include <sched.h>

#include <cstddef>

namespace weft {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int num_ranks) {
  const auto ranks = static_cast<size_t>(num_ranks);
  if (cores.size() < ranks) return {};
  std::vector<std::vector<int>> shares;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = static_cast<std::ptrdiff_t>(cores.size() * rank / ranks);
    const auto end = static_cast<std::ptrdiff_t>(cores.size() * (rank + 1) / ranks);
    shares.emplace_back(cores.begin() + begin, cores.begin() + end);
  }
  return shares;
}

}  // namespace weft
