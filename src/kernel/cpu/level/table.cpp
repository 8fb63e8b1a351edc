// kernel/cpu/level/table.cpp: the table of this instruction level.
#include "kernel/cpu/level/ops.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr Kernels kTable = {.name = WEFT_LEVEL_NAME,
                            WEFT_KERNELS(WEFT_LIST_PLAIN, WEFT_LIST_SCRATCH)};

}  // namespace

const Kernels& kernels();
const Kernels& kernels() { return kTable; }

}  // namespace weft::WEFT_LEVEL
