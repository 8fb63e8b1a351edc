// train/host_slices.h: slices of a device's memory where the host can read them.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tensor/device.h"

namespace weft {

// The slices as they were when this was made; on the CPU they are the memory itself.
class HostSlices {
 public:
  HostSlices(std::vector<Slice> slices, Device* device);
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  std::vector<Slice> slices_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace weft
