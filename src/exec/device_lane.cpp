// exec/device_lane.cpp: one event where the lane begins, one for each call in flight.
#include "exec/device_lane.h"

#include "base/error.h"

namespace weft {
namespace {

// Work queued while it lives goes to the lane.
class InLane {
 public:
  explicit InLane(Device* device) : device_(device) { device->use(Queue::kLane); }
  ~InLane() { device_->use(Queue::kMain); }
  InLane(const InLane&) = delete;
  InLane& operator=(const InLane&) = delete;

 private:
  Device* device_;
};

}  // namespace

DeviceLane::DeviceLane(Device* device) : device_(device), posted_(device->make_event()) {
  for (std::unique_ptr<Event>& done : done_) done = device->make_event();
  const InLane lane(device);
  stream_ = device->stream();
}

void DeviceLane::begin() { num_posted_ = num_waited_ = 0; }

void DeviceLane::post(const std::function<void()>& call) {
  if (num_posted_ - num_waited_ >= kInFlight) throw BugError("too many async calls in a list");
  posted_->set();
  const InLane lane(device_);
  posted_->hold();
  call();
  done_[static_cast<size_t>(num_posted_++ % kInFlight)]->set();
}

void DeviceLane::wait(int number) {
  if (number <= num_waited_) return;
  done_[static_cast<size_t>((number - 1) % kInFlight)]->hold();
  num_waited_ = number;
}

}  // namespace weft
