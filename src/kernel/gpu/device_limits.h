// kernel/gpu/device_limits.h: how large the kernels of a GPU take things. Plans are checked against
// it (exec/ops/), so that a kernel that is asked for more is a fault of ours.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kMostHeadDim = 256;  // of attention: rows of a head in shared memory
inline constexpr int64_t kMostNormChannels = 32768;  // 1024 threads with 32 values each
// Of one pass, or one id's rows could not be put in order: a bit each in the shared memory that the
// smallest GPU gives a block, 64 KiB, of which the kernel has 1 KiB for itself.
inline constexpr int64_t kMostPassTokens = int64_t{63 << 10} * 8;
inline constexpr int64_t kMostGridRows = 65535;  // second and third extent of a grid: rows, heads

}  // namespace weft
