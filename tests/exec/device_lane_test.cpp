// tests/exec/device_lane_test.cpp: the order between a device's two queues.
#include "exec/device_lane.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/fake_device.h"

namespace weft {
namespace {

using testing::FakeDevice;

// Event 0: the lane begins; 1 and 2: calls in flight, alternating.
TEST(DeviceLane, FollowsTheSchedule) {
  std::vector<std::string> log;
  FakeDevice device(&log);
  DeviceLane lane(&device);
  for (int list = 0; list < 2; ++list) {
    log.clear();
    lane.begin();
    device.tell("a");
    lane.post([&] { device.tell("A"); });
    device.tell("b");
    lane.wait(0);  // nothing
    lane.post([&] { device.tell("B"); });
    device.tell("c");
    lane.wait(1);
    lane.wait(1);  // known already
    lane.post([&] { device.tell("C"); });
    lane.wait(3);
    lane.wait(2);
    device.tell("d");
    const std::vector<std::string> wanted = {
        "main: a",      "main: set 0",  "lane: hold 0", "lane: A",     "lane: set 1",  //
        "main: b",      "main: set 0",  "lane: hold 0", "lane: B",     "lane: set 2",  //
        "main: c",      "main: hold 1",                                                //
        "main: set 0",  "lane: hold 0", "lane: C",      "lane: set 1",                 //
        "main: hold 1", "main: d"};
    EXPECT_EQ(log, wanted) << "list " << list;
  }
}

TEST(DeviceLane, AFailedCallLeavesTheMainQueueInUse) {
  std::vector<std::string> log;
  FakeDevice device(&log);
  DeviceLane lane(&device);
  EXPECT_NE(lane.stream(), device.stream());
  lane.begin();
  EXPECT_THROW(lane.post([] { throw PeerError("gone"); }), PeerError);
  device.tell("after");
  EXPECT_EQ(log.back(), "main: after");
}

TEST(DeviceLane, MoreInFlightThanEventsIsABug) {
  FakeDevice device;
  DeviceLane lane(&device);
  lane.begin();
  for (int i = 0; i < kInFlight; ++i) lane.post([] {});
  EXPECT_THROW(lane.post([] {}), BugError);
}

// Memory without locks: only the order of the queues keeps their threads apart.
TEST(DeviceLane, WritesOfOneQueueAreVisibleInTheOther) {
  FakeDevice device;
  DeviceLane lane(&device);
  constexpr int kCalls = 200;
  int64_t main_value = 0, lane_value = 0, wrong = 0;
  lane.begin();
  for (int i = 0; i < kCalls; ++i) {
    lane.wait(i - 1);
    FakeDevice::queue_work(device.stream(), [&, i] { main_value = i; });
    lane.wait(i);  // before the lane's value is read
    FakeDevice::queue_work(device.stream(), [&, i] { wrong += lane_value != i; });
    lane.post([&, i] {
      FakeDevice::queue_work(device.stream(), [&, i] {
        wrong += main_value != i;
        lane_value = i + 1;
      });
    });
    lane.wait(i + 1);
  }
  lane.wait(kCalls);
  device.wait();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(lane_value, kCalls);
}

}  // namespace
}  // namespace weft
