// comm/ipc/device_comm.h: ranks that share one GPU ("cuda_ipc").
//
// Every rank maps the arenas of the others. They synchronize on the host; copies and sums are
// queued on each rank's own stream. A call waits for the stream before the first and the last
// barrier, so that it is complete when it returns, as on the CPU. NCCL rejects two ranks on one
// GPU; this is for tests and small machines.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace weft {

// Collective over the ranks of `host`. Data inside the arena is device memory; other data is host
// memory and goes through `host`. The device must outlive it, and the arena must outlive the Comms
// of all ranks, which have it mapped.
std::unique_ptr<Comm> make_device_comm(std::shared_ptr<Comm> host, Device* device,
                                       const DeviceKernels& kernels, std::byte* arena,
                                       int64_t arena_bytes);

}  // namespace weft
