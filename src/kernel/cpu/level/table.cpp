// kernel/cpu/level/table.cpp: the table of this instruction level.
#include "kernel/cpu/level/ops.h"

#ifndef WEFT_BASE_LEVEL
#define WEFT_BASE_LEVEL WEFT_LEVEL
#endif

namespace weft {

namespace WEFT_BASE_LEVEL {
namespace {

constexpr Kernels kTable = {.name = WEFT_LEVEL_NAME,
                            WEFT_KERNELS(WEFT_LIST_PLAIN, WEFT_LIST_SCRATCH)};

}  // namespace
}  // namespace WEFT_BASE_LEVEL

namespace WEFT_LEVEL {
namespace {

// A level with a base has matrix products of its own; without one these are the same twice.
constexpr Kernels with_own_products(Kernels table) {
  table.gemm = gemm;
  table.gemm_workspace = gemm_workspace;
  return table;
}

constexpr Kernels kOwnTable = with_own_products(WEFT_BASE_LEVEL::kTable);

}  // namespace

const Kernels& kernels();
const Kernels& kernels() { return kOwnTable; }

}  // namespace WEFT_LEVEL
}  // namespace weft
