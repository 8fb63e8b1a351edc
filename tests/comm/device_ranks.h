// tests/comm/device_ranks.h: groups of ranks with fake GPUs, as the contract wants them.
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

// A group over NCCL whose calls end when they return: after each the device is waited for.
std::unique_ptr<Comm> make_waiting_comm(std::unique_ptr<Comm> inner, FakeDevice* device);

}  // namespace weft::testing
