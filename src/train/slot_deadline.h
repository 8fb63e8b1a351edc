// train/slot_deadline.h: how long a rank waits for the next bytes of another node's agent.
#pragma once

#include <cstdint>

namespace weft {

// Less than a rank has to park (JobOptions::park_ms): one that waits for an agent that is gone
// must not be taken for one that hangs.
inline constexpr int64_t kSlotMs = 8000;

}  // namespace weft
