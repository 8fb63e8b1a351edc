// tests/planning/collective_cost_test.cpp: collectives on two nodes of four, computed by hand.
#include "planning/collective_cost.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

// Two nodes of four devices: 100 GB/s and 1 us inside, 10 GB/s of a node and 5 us between.
Cluster two_by_four(const std::string& algorithm) {
  Cluster c;
  c.nodes = 2;
  c.devices_per_node = 4;
  c.inside = {100, 1};
  c.between = {10, 5};
  c.algorithm = algorithm;
  return c;
}

constexpr GroupPlace kAll{8, 4, 1}, kNode{4, 4, 1}, kAcross{2, 1, 4};

double seconds(const std::string& algorithm, const GroupPlace& group, CommOp op, double bytes) {
  return collective_seconds(two_by_four(algorithm), group, op, bytes);
}

// 1 GB from each of 8: a tensor of 8 GB.
TEST(CollectiveCost, GathersOverTwoNodes) {
  const auto gather = [](const char* algorithm) {
    return seconds(algorithm, kAll, CommOp::kAllGather, 1e9);
  };
  EXPECT_NEAR(gather("ring"), 5e-6 + 2 * 5e-6 + 0.7, 1e-12);    // 7 hops, 2 leave a node; 7 GB
  EXPECT_NEAR(gather("tree"), 2e-6 + 5e-6 + 0.7, 1e-12);        // log2 of 4 and of 2
  EXPECT_NEAR(gather("direct"), 3e-6 + 4 * 5e-6 + 1.6, 1e-12);  // 4 x 4 GB leave a node
  EXPECT_NEAR(gather("hierarchical"), 3e-6 + 0.06 + 5e-6 + 0.4, 1e-12);  // 6 GB inside, 4 between
  EXPECT_DOUBLE_EQ(gather("auto"), gather("ring"));
}

TEST(CollectiveCost, AnAllReduceIsTwoPhases) {
  for (const char* algorithm : {"ring", "tree", "direct", "hierarchical"}) {
    const double scatter = seconds(algorithm, kAll, CommOp::kReduceScatter, 8e9);
    EXPECT_DOUBLE_EQ(scatter, seconds(algorithm, kAll, CommOp::kAllGather, 1e9)) << algorithm;
    EXPECT_DOUBLE_EQ(seconds(algorithm, kAll, CommOp::kAllToAll, 8e9), scatter) << algorithm;
    EXPECT_DOUBLE_EQ(seconds(algorithm, kAll, CommOp::kAllReduce, 8e9), 2 * scatter) << algorithm;
  }
  EXPECT_DOUBLE_EQ(seconds("auto", kAll, CommOp::kAllReduce, 8e9),
                   seconds("tree", kAll, CommOp::kAllReduce, 8e9));
}

TEST(CollectiveCost, StaysInsideANode) {
  EXPECT_DOUBLE_EQ(seconds("ring", kNode, CommOp::kReduceScatter, 4e9), 3e-6 + 0.03);
  EXPECT_DOUBLE_EQ(seconds("hierarchical", kNode, CommOp::kReduceScatter, 4e9), 3e-6 + 0.03);
  EXPECT_DOUBLE_EQ(seconds("tree", kNode, CommOp::kReduceScatter, 4e9), 2e-6 + 0.03);
  EXPECT_DOUBLE_EQ(seconds("auto", {1, 1, 1}, CommOp::kAllReduce, 1e9), 0);
}

// Four groups of one rank per node use the node's link at the same time: a quarter each.
TEST(CollectiveCost, GroupsShareTheLinkOfANode) {
  for (const char* algorithm : {"ring", "tree", "direct", "hierarchical"}) {
    EXPECT_DOUBLE_EQ(seconds(algorithm, kAcross, CommOp::kReduceScatter, 5e9), 5e-6 + 1.0)
        << algorithm;
  }
}

// auto on CPUs, as comm/nodes: 8 GB whole; inside 6 GB, between 4 GB. An all_reduce has both twice.
TEST(CollectiveCost, CpuNodesGoInTwoStages) {
  Cluster c = two_by_four("auto");
  c.device.kind = "cpu";
  const auto cost = [&](const GroupPlace& group, CommOp op, double bytes, Dtype dtype) {
    return collective_seconds(c, group, op, bytes, dtype);
  };
  const double data = 0.06 + 0.4;
  EXPECT_NEAR(cost(kAll, CommOp::kAllReduce, 8e9, Dtype::kF32), 2 * (data + 8e-6), 1e-12);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kI64})
    EXPECT_NEAR(cost(kAll, CommOp::kReduceScatter, 8e9, dtype), data + 11e-6, 1e-12);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16})
    EXPECT_NEAR(cost(kAll, CommOp::kAllGather, 1e9, dtype), data + 11e-6, 1e-12);
}

// Sums of 16-bit numbers, a number of ranks per node that is no power of two, exchanges between all
// ranks, and little data: every rank to every other, as inside a node and with one rank per node.
TEST(CollectiveCost, OtherCallsOfCpuNodesAreFlat) {
  Cluster flat = two_by_four("direct"), c = two_by_four("auto");
  flat.device.kind = c.device.kind = "cpu";
  const auto expect_flat = [&](const GroupPlace& group, CommOp op, double bytes, Dtype dtype) {
    EXPECT_DOUBLE_EQ(collective_seconds(c, group, op, bytes, dtype),
                     collective_seconds(flat, group, op, bytes, dtype));
  };
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    expect_flat(kAll, CommOp::kAllReduce, 8e9, dtype);
    expect_flat(kAll, CommOp::kReduceScatter, 8e9, dtype);
  }
  expect_flat({6, 3, 1}, CommOp::kAllReduce, 6e9, Dtype::kF32);
  expect_flat(kAll, CommOp::kAllToAll, 8e9, Dtype::kF32);
  expect_flat(kAll, CommOp::kAllReduce, 4096, Dtype::kF32);
  expect_flat(kAll, CommOp::kReduceScatter, 8 * 4096, Dtype::kF32);
  expect_flat(kNode, CommOp::kAllReduce, 8e9, Dtype::kF32);
  expect_flat(kAcross, CommOp::kAllReduce, 8e9, Dtype::kF32);
}

TEST(CollectiveCost, LatencyGrowsWithTheLogarithmOrTheRanks) {
  Cluster c = two_by_four("ring");
  const GroupPlace many{1024, 1, 1};
  EXPECT_NEAR(collective_seconds(c, many, CommOp::kAllGather, 0), 1023 * 5e-6, 1e-9);
  c.algorithm = "auto";
  EXPECT_NEAR(collective_seconds(c, many, CommOp::kAllGather, 0), 10 * 5e-6, 1e-9);
}

Layout layout(int dp, int tp) {
  Layout l;
  l.dp = dp;
  l.tp = tp;
  return l;
}

TEST(GroupPlace, RanksFillNodesInOrder) {
  const Cluster c = two_by_four("auto");
  const GroupPlace data = place_group(layout(4, 2), c, Axis::kData, 4);
  EXPECT_EQ(data.per_node, 2);
  EXPECT_EQ(data.nodes(), 2);
  EXPECT_EQ(data.sharers, 2);
  EXPECT_EQ(place_group(layout(4, 2), c, Axis::kTensor, 2).nodes(), 1);
  EXPECT_EQ(place_world(layout(4, 2), c).nodes(), 2);
  EXPECT_EQ(place_group(layout(3, 1), c, Axis::kData, 3).nodes(), 1);
}

std::string refused(int dp, int tp) {
  return testing::error_of<UserError>(
      [&] { ranks_on_a_node(layout(dp, tp), two_by_four("auto")); });
}

TEST(GroupPlace, RefusesWhatTheClusterCannotHold) {
  EXPECT_NE(refused(9, 1).find("9 ranks, but the cluster has 2 nodes x 4 devices = 8"),
            std::string::npos);
  EXPECT_NE(refused(6, 1).find("do not fill nodes of 4"), std::string::npos);
  EXPECT_NE(refused(1, 8).find("parallel.tp=8 does not divide the 4"), std::string::npos);
}

}  // namespace
}  // namespace weft
