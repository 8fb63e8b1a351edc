// kernel/cuda/ops.h: the operations of the CUDA backend.
#pragma once

#include "kernel/device_kernels.h"

namespace weft::cuda {

WEFT_KERNELS(WEFT_DECLARE_PLAIN, WEFT_DECLARE_SCRATCH)

WEFT_DEVICE_KERNELS(WEFT_DECLARE_PLAIN)
int64_t update_table(const UpdateItem* items, int64_t count, std::byte* table);
size_t update_table_bytes(const UpdateItem* items, int64_t count);
int64_t squares_table(const SquaresItem* items, int64_t count, std::byte* table);
size_t squares_table_bytes(const SquaresItem* items, int64_t count);

}  // namespace weft::cuda
