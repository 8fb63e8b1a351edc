// kernel/cuda/cross_entropy_kept.h: cross entropy with gradient that keeps rows on chip.
#pragma once

#include "kernel/device_kernels.h"

namespace weft::cuda {

// For rows of whole vectors of 16 bytes at such addresses, and blocks_per_sm 1 or 2.
void keep_rows(const Context& context, const KeptCrossEntropyArgs& kept);

}  // namespace weft::cuda
