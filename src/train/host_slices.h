// train/host_slices.h: copies of device slices that the host can read.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tensor/device.h"

namespace weft {

// The slices at construction time; on the CPU the memory itself.
class HostSlices {
 public:
  HostSlices(std::vector<Slice> slices, Device* device);
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  std::vector<Slice> slices_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace weft
