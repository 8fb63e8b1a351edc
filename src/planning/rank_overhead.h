// planning/rank_overhead.h: what a rank takes besides its arena.
#pragma once

#include "planning/layout.h"

namespace weft {

// Memory that libraries take beside the arena once they run: modules, handles, their own scratch
// (an allowance); and that with what the context took before, 1,737 MiB as measured on an H200 with
// CUDA 13 and cuDNN 9.14.
inline constexpr int64_t kLibraryBytes = int64_t{1200} << 20;
inline constexpr int64_t kContextBytes = int64_t{1740} << 20;

// What is expected beside a rank's arena: that context, or on the CPU what planning/host_memory.h
// adds up; and its name in reports: "context" or "program".
int64_t arena_overhead(const RunConfig& config, bool is_on_gpu);
const char* arena_overhead_name(bool is_on_gpu);
// And beside that, where ranks of exact mode talk over NCCL: an area for each group of a rank, in
// which addends meet (comm/nccl/nccl.h).
int64_t staging_bytes(const Layout& layout, bool is_on_gpu);

// The most ranks that work on one GPU: 1, unless they share (planning/backend.h); then by the GPUs
// that are here, or one where there are none.
int64_t ranks_on_a_gpu(int64_t num_ranks, bool is_on_gpu);

}  // namespace weft
