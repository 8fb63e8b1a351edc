// kernel/cpu/level.h: which instruction levels this machine has.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Names from the plainest level to the best; "ref" is not among them.
std::vector<const char*> available_levels();

// exp, log and erf of a level over arrays; for measuring their accuracy.
struct LevelMath {
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
  void (*erf)(const float* x, float* y, int64_t n);
};
LevelMath level_math(const char* name);  // of an available level

}  // namespace weft
