// base/elapsed.h: wall time since a moment, in seconds.
#pragma once

#include <chrono>

namespace weft {

inline double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace weft
