// comm/nccl/nccl.h: ranks with one GPU each ("nccl").
//
// Calls on data in the arena are queued on the rank's device, in the queue in use, and return at
// once: the caller may rely only on the queue's order. Before they are queued they are compared
// over the host, which costs some microseconds; captured calls are compared once. All groups of a
// rank are used by one thread.
//
// NCCL adds in its own order, which depends on sizes and links. In exact mode it only moves bytes:
// every rank gets the others' addends of its share, in pieces that fit a staging area of
// kNcclStagingBytes, and adds them in the tree of comm.h; then the shares go to all. Integer sums
// do not depend on order, and stay NCCL's. The staging area is allocated once per group, in
// addition to the arena; fast mode has none.
//
// The host never waits in a call. While it waits for the device (Device::set_watch) check_queued
// checks whether NCCL failed, the group was aborted or the wait is too long, and if so aborts the
// communicator, which ends its work on the GPU.
#pragma once

#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/nccl/nccl_library.h"
#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace weft {

inline constexpr int64_t kNcclStagingBytes = int64_t{32} << 20;

struct NcclOptions {
  bool is_exact = false;
  std::string interface = "lo";  // launch.interface
  // Tests lower it to get many pieces from little data.
  int64_t staging_bytes = kNcclStagingBytes;
  NcclLibrary* library = nullptr;  // null: find_nccl's
};

// Collective over the ranks of `host`. Data inside the arena is device memory; other data is host
// memory and goes through `host`. Device and arena must outlive it, and it must outlive captured
// graphs of its calls. UserError where there is no NCCL.
std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<Comm> host, Device* device,
                                     const DeviceKernels& kernels, std::byte* arena,
                                     int64_t arena_bytes, const NcclOptions& options);

}  // namespace weft
