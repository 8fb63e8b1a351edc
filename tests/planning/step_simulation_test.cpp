// tests/planning/step_simulation_test.cpp: two lanes against times that are computed by hand.
#include "planning/step_simulation.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TimedNode compute(double seconds, int wait_for = 0, CostKind kind = CostKind::kProducts) {
  return {{kind, seconds}, 0, false, wait_for, false};
}

TimedNode async(double seconds, int wait_for = 0) { return {{}, seconds, true, wait_for, false}; }

// Computes 3, posts a collective of 4, computes 2, needs its result, computes 1.
const std::vector<TimedNode> kOverlap = {compute(3), async(4), compute(2), compute(1, 1)};

TEST(StepSimulation, ACollectiveOverlapsWhatDoesNotNeedIt) {
  const StepTimes t = simulate_list(kOverlap, {}, true);
  EXPECT_DOUBLE_EQ(t.step, 8);  // the collective ends at 7
  EXPECT_DOUBLE_EQ(t.products, 6);
  EXPECT_DOUBLE_EQ(t.lane, 4);
  EXPECT_DOUBLE_EQ(t.waiting, 2);
  EXPECT_DOUBLE_EQ(t.exposed(), 2);
}

// Between 3 and 7 the computation gets only the rest of the device.
TEST(StepSimulation, ACollectiveInFlightTakesItsShare) {
  EXPECT_DOUBLE_EQ(simulate_list(kOverlap, {0, 0.25}, true).step, 8);  // 2 / 0.75 fit before 7
  EXPECT_DOUBLE_EQ(simulate_list(kOverlap, {0, 0.5}, true).step, 8);   // 2 / 0.5 end at 7
  EXPECT_DOUBLE_EQ(simulate_list(kOverlap, {0, 0.75}, true).step, 9);  // 1 of 2 is done at 7
  const StepTimes all = simulate_list(kOverlap, {0, 1}, true);
  EXPECT_DOUBLE_EQ(all.step, 10);  // one after the other
  EXPECT_DOUBLE_EQ(all.waiting, 4);
}

// The second starts at 4, when the first is done; the end of a list waits for both.
TEST(StepSimulation, TheLaneWorksInOrder) {
  EXPECT_DOUBLE_EQ(simulate_list({async(4), async(2), compute(1)}, {}, true).step, 6);
  EXPECT_DOUBLE_EQ(simulate_list({async(4), async(2), compute(5, 1)}, {}, true).step, 9);
  EXPECT_DOUBLE_EQ(simulate_list({async(4), async(2), compute(5, 2)}, {}, true).step, 11);
  // With the whole device taken: 4, then 2, then the computation; a late one stops it at 3.
  EXPECT_DOUBLE_EQ(simulate_list({async(4), async(2), compute(5)}, {0, 1}, true).step, 11);
  EXPECT_DOUBLE_EQ(simulate_list({compute(3), async(1), compute(5)}, {0, 1}, true).step, 9);
  // Two flights with a pause between: half speed in [1, 3] and [5, 7], so 6 of work take 8.
  EXPECT_DOUBLE_EQ(
      simulate_list({compute(1), async(2), compute(3), async(2), compute(3)}, {0, 0.5}, true).step,
      9);
}

// Posting one more than may be in flight waits for the first, as the schedule requires.
TEST(StepSimulation, PostingWaits) {
  const StepTimes t = simulate_list({async(4), async(4), async(4, 1), compute(1)}, {}, true);
  EXPECT_DOUBLE_EQ(t.step, 12);
  EXPECT_DOUBLE_EQ(
      simulate_list({async(4, 0), async(4, 0), async(1, 1), compute(9)}, {}, true).step,
      13);  // the computation begins at 4
}

TEST(StepSimulation, CountsGapsAndCollectivesInLine) {
  TimedNode head = compute(2, 0, CostKind::kAttention);
  head.communication = 3;
  const StepTimes t = simulate_list({compute(1, 0, CostKind::kMemory), head}, {0.5, 0}, true);
  EXPECT_DOUBLE_EQ(t.memory, 1);
  EXPECT_DOUBLE_EQ(t.attention, 2);
  EXPECT_DOUBLE_EQ(t.gaps, 1);
  EXPECT_DOUBLE_EQ(t.in_line, 3);
  EXPECT_DOUBLE_EQ(t.step, 7);
  EXPECT_DOUBLE_EQ(t.waiting, 0);
}

TEST(StepSimulation, SomeNodesBelongToTheLastPass) {
  std::vector<TimedNode> nodes = {compute(3), async(4), compute(1, 1)};
  nodes[1].last_pass_only = true;
  EXPECT_DOUBLE_EQ(simulate_list(nodes, {}, true).step, 8);
  EXPECT_DOUBLE_EQ(simulate_list(nodes, {}, false).step, 4);
  StepTimes both = simulate_list(nodes, {}, true);
  both.add(simulate_list(nodes, {}, false));
  EXPECT_DOUBLE_EQ(both.step, 12);
  EXPECT_DOUBLE_EQ(both.lane, 4);
}

}  // namespace
}  // namespace weft
