// net/deadline.h: how long a rank waits for another before it considers it lost.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kDeadlineMs = 30'000;
// While a peer may work for long (comm/comm.h, ScopedNoDeadline).
inline constexpr int64_t kPatientMs = 24 * 3600 * 1000;

}  // namespace weft
