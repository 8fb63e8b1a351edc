// comm/ipc/device_comm.h: ranks whose tensors lie in the memory of one GPU ("cuda_ipc").
//
// Every rank reaches the arenas of the others. They meet on the host; what is moved and added is
// queued on each rank's own stream. A call waits for the stream before the first meeting and before
// the last, so that it ends as one of the CPU does. NCCL refuses two ranks on one GPU; this is for
// tests and small machines.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace weft {

// This rank's end; all ranks of `host` make theirs together. Data inside the arena is the device's;
// other data is the host's and goes to `host`. The device must outlive it, and the arena the ends
// of all ranks, which have it mapped.
std::unique_ptr<Comm> make_device_comm(std::shared_ptr<Comm> host, Device* device,
                                       const DeviceKernels& kernels, std::byte* arena,
                                       int64_t arena_bytes);

}  // namespace weft
