// train/room.h: what does not fit its GPU is refused before it takes anything.
#pragma once

#include "kernel/kernels.h"
#include "tensor/device.h"
#include "train/layout.h"

namespace weft {

// Memory that libraries take beside the arena once they run: modules, handles, their own scratch
// (an allowance); and that with what the context took before, 1,737 MiB as measured on an H200 with
// CUDA 13 and cuDNN 9.14.
inline constexpr int64_t kLibraryBytes = int64_t{1200} << 20;
inline constexpr int64_t kContextBytes = int64_t{1740} << 20;

// What is expected beside a rank's arena: that context, or on the CPU what train/host_memory.h adds
// up; and its name in reports: "context" or "program".
int64_t beside_arena(const RunConfig& config, bool is_on_gpu);
const char* beside_arena_name(bool is_on_gpu);
// And beside that, where ranks of exact mode talk over NCCL: an area for each group of a rank, in
// which addends meet (comm/nccl.h).
int64_t staging_bytes(const Layout& layout, bool is_on_gpu);

// The most ranks that work on one GPU: 1, unless they share (train/backend.h); then by the GPUs
// that are here, or one where there are none.
int64_t ranks_on_a_gpu(int64_t num_ranks, bool is_on_gpu);

// UserError with both numbers, the nearest layout that fits, and single changes that would do.
void check_room(const RunConfig& config, const Layout& layout, const Kernels& kernels,
                int64_t arena_bytes, const Device& device);

// The same where no layout helps: `what` wants the arena, `hint` says how it wants less.
void check_room(const std::string& what, int64_t arena_bytes, const Device& device,
                const std::string& hint);

}  // namespace weft
