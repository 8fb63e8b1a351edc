// tests/exec/fake_device_test.cpp: the fake GPU is as strict as a real one.
#include "tests/fake_device.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::FakeDevice;

TEST(FakeDevice, AReplayHasTheArgumentsOfTheCapture) {
  FakeDevice device;
  int values[] = {1, 2, 0};
  int from = 0;  // what the host changes between replays
  const auto captured =
      device.capture([&] { device.copy(&values[2], &values[from], sizeof(int)); });
  EXPECT_EQ(device.num_queued(Queue::kMain), 0);  // captured, not run
  from = 1;
  captured->replay();
  device.wait();
  EXPECT_EQ(values[2], 1);
  values[0] = 7;  // memory is read again
  captured->replay();
  device.wait();
  EXPECT_EQ(values[2], 7);
}

TEST(FakeDevice, CallsForbiddenInACaptureAreDetected) {
  FakeDevice device;
  const auto outside = device.make_event(), inside = device.make_event();
  outside->set();
  EXPECT_THROW(device.capture([&] { outside->hold(); }), BugError);
  EXPECT_THROW(device.capture([&] { device.wait(); }), BugError);
  EXPECT_NO_THROW(device.capture([&] {
    inside->set();
    device.use(Queue::kLane);
    inside->hold();
    device.use(Queue::kMain);
  }));
}

TEST(FakeDevice, FailsFromTheGivenCallOn) {
  FakeDevice device;
  device.fault = {"wait", 2, "cudaErrorIllegalAddress", 5};
  device.wait();
  int a = 1, b = 2;
  device.copy(&a, &b, sizeof a);
  EXPECT_THROW(device.wait(), PeerError);
  EXPECT_THROW(device.copy(&a, &b, sizeof a), PeerError);  // sticky
}

}  // namespace
}  // namespace weft
