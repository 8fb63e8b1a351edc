// train/snapshot.cpp: one allocation, one copy per slice.
#include "train/snapshot.h"

#include <new>

#include "base/direct_file.h"

namespace weft {
namespace {

constexpr std::align_val_t kPage{DirectFile::kAlignment};

}  // namespace

void copy_state(const RankFile& file, Device* device, std::byte* to) {
  if (device->is_host()) return file.copy_to(to, nullptr);
  file.copy_to(to, [device](void* at, const void* from, size_t bytes) {
    device->read_aside(at, from, static_cast<int64_t>(bytes));
  });
  device->wait_aside();
}

Snapshot::~Snapshot() {
  if (!memory_) return;
  if (device_->is_host()) {
    ::operator delete(memory_, kPage);
  } else {
    device_->free_pinned(memory_, static_cast<int64_t>(file_.bytes()));
  }
}

void Snapshot::reserve() {
  if (memory_) return;
  memory_ = device_->is_host() ? static_cast<std::byte*>(::operator new(file_.bytes(), kPage))
                               : device_->allocate_pinned(static_cast<int64_t>(file_.bytes()));
}

void Snapshot::copy() {
  reserve();
  copy_state(file_, device_, memory_);
}

}  // namespace weft
