// comm/nccl/nccl.h: ranks with a GPU each ("nccl").
//
// Calls of data in the arena are queued on the rank's device, in the queue in use, and return: the
// order of the queue is all that the caller may rely on. Before they are queued they are compared
// over the host, which costs some microseconds; what is recorded and replayed is compared once. All
// groups of a rank are used by one thread.
//
// NCCL adds in an order of its own, which follows sizes and links. In exact mode it moves bytes and
// nothing else: every rank gets the others' addends of its share, in pieces that fit a staging area
// of kNcclStagingBytes, and adds them in the tree of comm.h; then the shares go to all. Sums of
// integers have one result in any order, and stay NCCL's. The staging area is taken once, a group,
// beside the arena; fast mode has none.
//
// The host never waits in a call. Where it waits for the device (Device::set_watch) check_queued
// looks whether NCCL failed, the group was aborted or it has waited for too long, and if so aborts
// the communicator, which ends what is under way on the GPU.
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
  // Tests make it small to reach many pieces with little data.
  int64_t staging_bytes = kNcclStagingBytes;
  NcclLibrary* library = nullptr;  // null: find_nccl's
};

// This rank's end; all ranks of `host` make theirs together. Data inside the arena is the device's;
// other data is the host's and goes to `host`. Device and arena must outlive it, and it must
// outlive captured_graphs of its calls. UserError where there is no NCCL.
std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<Comm> host, Device* device,
                                     const DeviceKernels& kernels, std::byte* arena,
                                     int64_t arena_bytes, const NcclOptions& options);

}  // namespace weft
