// train/snapshot.cpp: one allocation, one copy per slice.
#include "train/snapshot.h"

#include <new>

#include "base/direct_file.h"

namespace weft {
namespace {

constexpr std::align_val_t kPage{DirectFile::kAlignment};

}  // namespace

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
  if (device_->is_host()) return file_.copy_to(memory_, nullptr);
  file_.copy_to(memory_, [this](void* to, const void* from, size_t bytes) {
    device_->read_aside(to, from, static_cast<int64_t>(bytes));
  });
}

}  // namespace weft
