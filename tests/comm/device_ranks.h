// tests/comm/device_ranks.h: groups of ranks with fake GPUs, as the contract test needs them.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "comm/nccl/nccl.h"
#include "kernel/device_kernels.h"
#include "tests/fake_device.h"
#include "tests/fake_nccl.h"

namespace weft::testing {

// reduce_tree on a fake device's stream; nothing else.
const DeviceKernels& fake_device_kernels();

// An NCCL group whose calls are complete when they return: each waits for the device.
std::unique_ptr<Comm> make_waiting_comm(std::unique_ptr<Comm> inner, FakeDevice* device);

}  // namespace weft::testing
