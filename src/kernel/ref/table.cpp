// kernel/ref/table.cpp: the reference backend as a table. It needs no scratch.
#include "kernel/ref/ref.h"

namespace weft {
namespace {

template <typename Args>
size_t no_workspace(const Args&, int) {
  return 0;
}

}  // namespace

const Kernels& ref_kernels() {
#define WEFT_REF_PLAIN(name, Args) .name = ref::name,
#define WEFT_REF_SCRATCH(name, Args) .name = ref::name, .name##_workspace = no_workspace<Args>,
  static const Kernels table = {.name = "ref", WEFT_KERNELS(WEFT_REF_PLAIN, WEFT_REF_SCRATCH)};
  return table;
}

}  // namespace weft
