// exec/device_lane.h: the lane of a list on a device: its second queue, with exec/schedule.h's
// order.
//
// A posted call starts after everything that was queued before it; the main queue continues
// meanwhile, and waits where the schedule requires. This is only ordering between two queues: the
// host never waits, and a captured graph contains both. Few calls are in flight (kInFlight), so few
// events are enough.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "exec/schedule.h"
#include "tensor/device.h"

namespace weft {

class DeviceLane {
 public:
  explicit DeviceLane(Device* device);

  void* stream() const { return stream_; }

  void begin();                                  // of a list: nothing is in flight
  void post(const std::function<void()>& call);  // queues the next one, in the lane
  void wait(int number);                         // the main queue continues after this many of them

 private:
  Device* device_;
  void* stream_;
  std::unique_ptr<Event> posted_;
  std::array<std::unique_ptr<Event>, kInFlight> done_;
  int num_posted_ = 0, num_waited_ = 0;
};

}  // namespace weft
