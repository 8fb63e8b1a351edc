// kernel/cuda/update_table.cu: an optimizer's parameters cut into blocks, on the host.
#include "kernel/cuda/ops.h"
#include "kernel/cuda/update.h"

namespace weft::cuda {

size_t update_table_bytes(const UpdateItem* items, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) blocks += ceil_div(items[i].n, kUpdateBlock);
  return static_cast<size_t>(blocks) * sizeof(UpdateSpan);
}

int64_t update_table(const UpdateItem* items, int64_t count, std::byte* table) {
  UpdateSpan* to = reinterpret_cast<UpdateSpan*>(table);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t first = 0; first < items[i].n; first += kUpdateBlock)
      *to++ = span_of(items[i], first);
  }
  return to - reinterpret_cast<UpdateSpan*>(table);
}

}  // namespace weft::cuda
