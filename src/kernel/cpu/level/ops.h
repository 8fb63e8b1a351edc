// kernel/cpu/level/ops.h: the kernels of this instruction level, and of its base (levels.cmake).
#pragma once

#include "kernel/kernels.h"

namespace weft::WEFT_LEVEL {

WEFT_KERNELS(WEFT_DECLARE_PLAIN, WEFT_DECLARE_SCRATCH)

}  // namespace weft::WEFT_LEVEL

#ifdef WEFT_BASE_LEVEL
namespace weft::WEFT_BASE_LEVEL {

WEFT_KERNELS(WEFT_DECLARE_PLAIN, WEFT_DECLARE_SCRATCH)

}  // namespace weft::WEFT_BASE_LEVEL
#endif
