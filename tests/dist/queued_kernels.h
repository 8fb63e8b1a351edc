// tests/dist/queued_kernels.h: kernels queued on a fake device's streams.
#pragma once

#include "kernel/kernels.h"

namespace weft::testing {

// Each call is done later, by the thread of the queue whose stream its context has.
const Kernels& queued_kernels();  // the emulated GPU's

// The CPU's, in a tenth of the time, for tests of ranks, queues and saves; they have no fp16. What
// the host does on a CPU is still an emulated kernel.
const Kernels& queued_cpu_kernels();

}  // namespace weft::testing
