// tests/train/snapshot_test.cpp: a snapshot's memory is allocated once, and early if asked to.
#include "train/snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/fake_device.h"

namespace weft::testing {
namespace {

TEST(Snapshot, ReservedMemoryServesEveryCopy) {
  std::vector<float> values = {1, 2, 3};
  const RankFile file({whole_tensor("values", {3}, Dtype::kF32, values.data())}, 0);
  const auto bytes = static_cast<int64_t>(file.bytes());
  FakeDevice device;
  {
    Snapshot snapshot(file, &device);
    EXPECT_EQ(device.taken_bytes(), 0);
    snapshot.reserve();
    const std::byte* reserved = snapshot.image();
    EXPECT_EQ(device.taken_bytes(), bytes);
    for (const float last : {3.0f, 4.0f}) {
      values[2] = last;
      snapshot.copy();
      EXPECT_EQ(snapshot.image(), reserved);
      EXPECT_EQ(device.taken_bytes(), bytes);
      float copied = 0;  // the file's last value
      std::memcpy(&copied, snapshot.image() + bytes - sizeof(float), sizeof(float));
      EXPECT_EQ(copied, last);
    }
  }
  EXPECT_EQ(device.taken_bytes(), 0);
}

}  // namespace
}  // namespace weft::testing
