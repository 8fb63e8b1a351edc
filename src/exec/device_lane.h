// exec/device_lane.h: the lane of a list on a device: its second queue, with exec/schedule.h's
// order.
//
// A call that is posted starts after everything that was queued before it; the main queue goes on
// meanwhile, and waits where the schedule says so. All of it is order between two queues: the host
// waits for nothing, and a recording holds both. The data of few calls is in flight (kInFlight), so
// few moments are enough.
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

  void begin();                                  // of a list: nothing is under way
  void post(const std::function<void()>& call);  // queues the next one, in the lane
  void wait(int number);                         // the main queue goes on after so many of them

 private:
  Device* device_;
  void* stream_;
  std::unique_ptr<Event> posted_;
  std::array<std::unique_ptr<Event>, kInFlight> done_;
  int num_posted_ = 0, num_waited_ = 0;
};

}  // namespace weft
