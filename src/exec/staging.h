// exec/staging.h: host memory for the next step's inputs while a device still works on the last.
#pragma once

#include <array>
#include <memory>

#include "tensor/device.h"

namespace weft {

class Staging {
 public:
  Staging(Device* device, int64_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Where to write: waits until the device has read the previous contents. The same place until
  // sent().
  std::byte* open();
  void sent();  // the copies from it are queued

 private:
  static constexpr size_t kSlots = 2;
  Device* device_;
  int64_t bytes_;
  std::array<std::byte*, kSlots> slots_{};
  std::array<std::unique_ptr<Event>, kSlots> taken_;
  size_t now_ = 0;
  bool is_open_ = false;
};

}  // namespace weft
