// kernel/cpu/level/ops.h: the kernels of this instruction level.
#pragma once

#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {

WEFT_KERNELS(WEFT_DECLARE_PLAIN, WEFT_DECLARE_SCRATCH)

}  // namespace weft::WEFT_LEVEL
