// planning/rank_overhead.h: a rank's memory besides its arena.
#pragma once

#include "planning/layout.h"

namespace weft {

// Memory that libraries allocate besides the arena once they run: modules, handles, their own
// scratch (an allowance); and that plus the context's, 1,737 MiB as measured on an H200 with CUDA
// 13 and cuDNN 9.14.
inline constexpr int64_t kLibraryBytes = int64_t{1200} << 20;
inline constexpr int64_t kContextBytes = int64_t{1740} << 20;

// A rank's expected memory besides its arena: that context, or on the CPU the sum of
// planning/host_memory.h; and its name in reports: "context" or "program".
int64_t arena_overhead(const RunConfig& config, bool is_on_gpu);
const char* arena_overhead_name(bool is_on_gpu);
// And in exact mode over NCCL: a staging area for the addends, per group of a rank
// (comm/nccl/nccl.h).
int64_t staging_bytes(const Layout& layout, bool is_on_gpu);

// The maximum number of ranks per GPU: 1, unless they share (planning/backend.h); then by the GPUs
// of this machine, or as if one where there are none.
int64_t ranks_on_a_gpu(int64_t num_ranks, bool is_on_gpu);

}  // namespace weft
