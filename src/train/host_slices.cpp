// train/host_slices.cpp: one copy per slice.
#include "train/host_slices.h"

namespace weft {
namespace {

int64_t slice_bytes(const Slice& slice) {
  const int64_t box = num_elements(slice.extent);
  const int64_t end = slice.flat_end < 0 ? box : slice.flat_end;
  return (end - slice.flat_begin) * dtype_bytes(slice.dtype);
}

}  // namespace

HostSlices::HostSlices(std::vector<Slice> slices, Device* device) : slices_(std::move(slices)) {
  if (device->is_host()) return;
  for (Slice& slice : slices_) {
    const int64_t bytes = slice_bytes(slice);
    memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes)));
    device->read(memory_.back().get(), slice.data, bytes);
    slice.data = memory_.back().get();
  }
}

}  // namespace weft
