// tests/exec/lane_test.cpp: calls next to the compute thread: order, waiting, failures.
#include "exec/lane.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace weft {
namespace {

using Calls = std::vector<std::function<void()>>;

// Memory without locks, as tensors are: only waiting keeps the two threads apart.
TEST(Lane, WritesAreVisibleAfterTheWait) {
  Lane lane;
  std::vector<int> written(40), read;
  Calls calls;
  for (size_t i = 0; i < written.size(); ++i) {
    calls.push_back([&written, i] { written[i] = i == 0 ? 1 : written[i - 1] + 1; });
  }
  for (int list = 0; list < 50; ++list) {
    std::fill(written.begin(), written.end(), 0);
    read.clear();
    lane.begin(&calls);
    for (size_t i = 0; i < calls.size(); ++i) {
      lane.post();
      if (i == 0) continue;
      lane.wait(static_cast<int>(i));  // one stays in flight
      read.push_back(written[i - 1]);
    }
    lane.wait(static_cast<int>(calls.size()));
    for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], static_cast<int>(i) + 1) << list;
    ASSERT_EQ(written.back(), 40);
  }
}

TEST(Lane, AFailureIsThrownAtTheWaitAndEndsTheList) {
  Lane lane;
  int done = 0;
  const Calls calls = {[&done] { ++done; }, [] { throw std::runtime_error("the second"); },
                       [&done] { ++done; }};
  lane.begin(&calls);
  for (size_t i = 0; i < calls.size(); ++i) lane.post();
  try {
    lane.wait(3);
    FAIL() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_EQ(std::string(e.what()), "the second");
  }
  EXPECT_THROW(lane.wait(2), std::runtime_error);
  EXPECT_EQ(done, 1);
}

TEST(Lane, CanBeDestroyedWithPendingCalls) {
  int done = 0;
  const Calls calls = {[&done] { ++done; }, [&done] { ++done; }};
  {
    Lane lane;
    lane.begin(&calls);
    lane.post();
    lane.wait(1);
    lane.post();
  }
  EXPECT_GE(done, 1);
}

}  // namespace
}  // namespace weft
