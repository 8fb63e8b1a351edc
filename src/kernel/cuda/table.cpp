// kernel/cuda/table.cpp: the CUDA backend as tables.
#include "kernel/cuda/ops.h"

namespace weft {
namespace cuda {

const DeviceKernels& device_kernels() {
  static const DeviceKernels table = {.update_table = update_table,
                                      .update_table_bytes = update_table_bytes,
                                      .squares_table = squares_table,
                                      .squares_table_bytes = squares_table_bytes,
                                      WEFT_DEVICE_KERNELS(WEFT_LIST_PLAIN)};
  return table;
}

const Kernels& kernels() {
  static const Kernels table = {.name = "cuda",
                                .device = &device_kernels(),
                                WEFT_KERNELS(WEFT_LIST_PLAIN, WEFT_LIST_SCRATCH)};
  return table;
}

}  // namespace cuda

const Kernels* cuda_kernels() { return &cuda::kernels(); }

}  // namespace weft
