// planning/gpu_memory_check.h: rejects what does not fit its GPU before anything is allocated.
#pragma once

#include "kernel/kernels.h"
#include "planning/layout.h"
#include "planning/rank_overhead.h"
#include "tensor/device.h"

namespace weft {

// UserError with both numbers, the nearest layout that fits, and single changes that would do.
void check_gpu_memory(const RunConfig& config, const Layout& layout, const Kernels& kernels,
                      int64_t arena_bytes, const Device& device);

// The same where no layout helps: `what` needs the arena, `hint` says how to reduce it.
void check_gpu_memory(const std::string& what, int64_t arena_bytes, const Device& device,
                      const std::string& hint);

}  // namespace weft
