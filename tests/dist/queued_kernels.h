// tests/dist/queued_kernels.h: the emulated kernels, queued on a fake device's streams.
#pragma once

#include "kernel/kernels.h"

namespace weft::testing {

// Each call is done later, by the thread of the queue whose stream its context has.
const Kernels& queued_kernels();

}  // namespace weft::testing
