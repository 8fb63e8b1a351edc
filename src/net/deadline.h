// net/deadline.h: how long a rank waits for another, before it takes it for lost.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kDeadlineMs = 30'000;
// For work of a peer that may be long (comm/comm.h, ScopedNoDeadline).
inline constexpr int64_t kPatientMs = 24 * 3600 * 1000;

}  // namespace weft
