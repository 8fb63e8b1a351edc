// kernel/gpu/device_limits.h: size limits of the GPU kernels. Plans are checked against them
// (exec/ops/), so that a kernel call beyond them is a bug.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kMostHeadDim = 256;        // of attention: rows of a head in shared memory
inline constexpr int64_t kMostDeviceBuckets = 128;  // of attention's relative positions: as above
inline constexpr int64_t kMostNormChannels = 32768;  // 1024 threads with 32 values each
// Per pass, since one id's rows must be sorted: one bit each in the 64 KiB of shared memory that
// the smallest GPU gives a block, of which the kernel uses 1 KiB for itself.
inline constexpr int64_t kMostPassTokens = int64_t{63 << 10} * 8;
inline constexpr int64_t kMostGridRows = 65535;  // second and third extent of a grid: rows, heads

}  // namespace weft
