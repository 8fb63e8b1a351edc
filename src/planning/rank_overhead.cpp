// planning/rank_overhead.cpp: measured on a GPU, summed up on the CPU.
#include "planning/rank_overhead.h"

#include <algorithm>

#include "comm/nccl/nccl.h"
#include "planning/backend.h"
#include "planning/host_memory.h"
#include "tensor/device.h"

namespace weft {

int64_t arena_overhead(const RunConfig& c, bool is_on_gpu) {
  return is_on_gpu ? kContextBytes : expected_host_memory(c).of_rank();
}

const char* arena_overhead_name(bool is_on_gpu) { return is_on_gpu ? "context" : "program"; }

int64_t staging_bytes(const Layout& layout, bool is_on_gpu) {
  if (!is_on_gpu || !layout.is_exact || shares_gpus()) return 0;
  const int num_groups = (layout.tp > 1) + (layout.dp > 1) + (layout.copies > 1);
  return num_groups * kNcclStagingBytes;
}

int64_t ranks_on_a_gpu(int64_t num_ranks, bool is_on_gpu) {
  if (!is_on_gpu || !shares_gpus()) return 1;
  std::string why;
  const int64_t count = std::max(1, count_cuda_devices(&why));
  return (num_ranks + count - 1) / count;
}

}  // namespace weft
