// exec/staging.cpp: two alternating slots.
#include "exec/staging.h"

namespace weft {

Staging::Staging(Device* device, int64_t bytes) : device_(device), bytes_(bytes) {
  for (size_t i = 0; i < kSlots; ++i) {
    slots_[i] = device->allocate_pinned(bytes);
    taken_[i] = device->make_event();
  }
}

Staging::~Staging() {
  for (size_t i = 0; i < kSlots; ++i) device_->free_pinned(slots_[i], bytes_);
}

std::byte* Staging::open() {
  if (!is_open_) taken_[now_]->wait();
  is_open_ = true;
  return slots_[now_];
}

void Staging::sent() {
  taken_[now_]->set();
  now_ = (now_ + 1) % kSlots;
  is_open_ = false;
}

}  // namespace weft
