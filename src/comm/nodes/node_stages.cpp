// comm/nodes/node_stages.cpp: by the group's shape, and by operation, size and element type.
#include "comm/nodes/node_stages.h"

#include <bit>

namespace weft {
namespace {

// Less goes flat: one exchange instead of three.
constexpr int64_t kFlatBytes = 4 << 10;

// Added in fp32 and rounded once: partial sums in the dtype itself would be rounded again.
bool is_widened(Dtype dtype) { return dtype == Dtype::kBf16 || dtype == Dtype::kF16; }

}  // namespace

bool can_have_node_stages(int64_t num_ranks, int64_t per_node) {
  return per_node > 1 && per_node < num_ranks && num_ranks % per_node == 0 &&
         std::has_single_bit(static_cast<uint64_t>(per_node));
}

bool has_node_stages(CommOp op, int64_t bytes, Dtype dtype, Reduce reduce) {
  if (bytes <= kFlatBytes) return false;
  if (op == CommOp::kAllGather) return true;
  const bool adds = op == CommOp::kAllReduce || op == CommOp::kReduceScatter;
  return adds && !(reduce == Reduce::kSum && is_widened(dtype));
}

}  // namespace weft
