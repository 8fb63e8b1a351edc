// tests/launch/placement_test.cpp: who takes part in a generation, and in what layout.
#include "launch/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "launch/layout_choice.h"

namespace weft {
namespace {

const std::vector<NodeLayout> kBatch12 = {{4, 4}, {3, 3}, {2, 2}, {1, 1}};
const std::vector<NodeLayout> kBatch8 = {{4, 4}, {2, 2}, {1, 1}};

TEST(Placement, TheLargestLayoutThatHasItsNodes) {
  const auto dp = [](const std::vector<NodeLayout>& layouts, int nodes) {
    const NodeLayout* found = largest_layout(layouts, nodes);
    return found ? found->dp : 0;
  };
  for (int nodes = 0; nodes <= 6; ++nodes) EXPECT_EQ(dp(kBatch12, nodes), std::min(nodes, 4));
  EXPECT_EQ(dp(kBatch8, 4), 4);
  EXPECT_EQ(dp(kBatch8, 3), 2);
  EXPECT_EQ(dp(kBatch8, 2), 2);
  EXPECT_EQ(dp(kBatch8, 1), 1);
  EXPECT_EQ(dp({{4, 8}}, 3), 0);
}

constexpr PlacedAgent kFirst{true, 0};
PlacedAgent node(int number) { return {false, number}; }
constexpr PlacedAgent kSpare{false, -1};

TEST(Placement, AtTheStartInTheOrderOfJoining) {
  EXPECT_EQ(place_agents({kSpare, kSpare, {true, -1}, kSpare}, 3), (std::vector{1, 2, 0, -1}));
}

TEST(Placement, TooFewLeaveGaps) {
  EXPECT_EQ(place_agents({kSpare}, 3), (std::vector{1}));  // 0 is the first agent's alone
  EXPECT_EQ(place_agents({kFirst, node(2)}, 4), (std::vector{0, 2}));
}

TEST(Placement, ASpareTakesTheLostNumberAndTheOthersKeepTheirs) {
  EXPECT_EQ(place_agents({kSpare, node(3), kFirst, node(1)}, 4), (std::vector{2, 3, 0, 1}));
}

TEST(Placement, FewerNodes) {
  // 4 -> 3: number 3 does not exist any more and fills the gap.
  EXPECT_EQ(place_agents({kFirst, node(3), node(2)}, 3), (std::vector{0, 1, 2}));
  // 4 -> 2 with one node to spare: number 1 is kept, or filled by the lowest of the others.
  EXPECT_EQ(place_agents({kFirst, node(3), node(1)}, 2), (std::vector{0, -1, 1}));
  EXPECT_EQ(place_agents({kFirst, node(3), node(2)}, 2), (std::vector{0, -1, 1}));
  // A node that has trained goes before a spare.
  EXPECT_EQ(place_agents({kSpare, kFirst, node(3)}, 2), (std::vector{-1, 0, 1}));
  EXPECT_EQ(place_agents({kFirst, node(1), node(2)}, 1), (std::vector{0, -1, -1}));
}

TEST(Placement, MoreNodesAgain) {
  EXPECT_EQ(place_agents({kFirst, kSpare, node(1), kSpare}, 4), (std::vector{0, 2, 1, 3}));
}

// Every number once, none beyond the layout, nobody idle while there is a gap.
TEST(Placement, NumbersAreComplete) {
  for (int num_nodes = 1; num_nodes <= 5; ++num_nodes) {
    for (int former = 0; former < 64; ++former) {
      std::vector<PlacedAgent> agents = {kSpare, kSpare, kFirst};
      for (int n = 6; n >= 1; --n) {
        if (former >> (n - 1) & 1) agents.push_back(node(n));
      }
      std::vector<int> numbers = place_agents(agents, num_nodes);
      EXPECT_EQ(numbers[2], 0);
      std::sort(numbers.begin(), numbers.end());
      const bool is_short = agents.size() < static_cast<size_t>(num_nodes);
      const auto spares = is_short ? 0 : agents.size() - static_cast<size_t>(num_nodes);
      for (size_t i = 0; i < agents.size(); ++i) {
        EXPECT_EQ(numbers[i] < 0, i < spares);
        EXPECT_TRUE(i <= spares || numbers[i] > numbers[i - 1]);
      }
      EXPECT_EQ(numbers[spares], 0);
      EXPECT_LT(numbers.back(), num_nodes);
    }
  }
}

std::optional<ChosenLayout> wait_for(LayoutChoice& choice, int num_nodes) {
  std::optional<ChosenLayout> chosen = choice.poll(num_nodes);
  while (!chosen && choice.is_checking()) {
    std::this_thread::yield();
    chosen = choice.poll(num_nodes);
  }
  return chosen;
}

TEST(LayoutChoice, WhatWasAskedForIsNotCheckedAgain) {
  std::atomic<int> checks = 0;
  LayoutChoice choice(kBatch8, [&](const NodeLayout&, int64_t) { return ++checks, LayoutFit{}; });
  EXPECT_TRUE(choice.is_elastic());
  EXPECT_EQ(wait_for(choice, 5)->layout.dp, 4);
  EXPECT_EQ(checks, 0);
  EXPECT_EQ(wait_for(choice, 3)->layout.describe(), "dp=2 on 2 nodes");
  EXPECT_EQ(checks, 1);
}

TEST(LayoutChoice, ALayoutThatDoesNotFitIsSkipped) {
  const auto fits = [](const NodeLayout& layout, int64_t) {
    return layout.dp > 1 ? LayoutFit{"2 GiB are missing", {}} : LayoutFit{"", {"--set", "a=b"}};
  };
  LayoutChoice choice(kBatch12, fits);
  const auto chosen = wait_for(choice, 3);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->layout.dp, 1);
  EXPECT_EQ(chosen->fit.arguments, (std::vector<std::string>{"--set", "a=b"}));
  EXPECT_EQ(choice.shortage(), "2 GiB are missing");
}

TEST(LayoutChoice, NoneFitsUntilItIsAskedAnew) {
  std::atomic<bool> is_short = true;
  LayoutChoice choice(kBatch8, [&](const NodeLayout&, int64_t) {
    return is_short ? LayoutFit{"2 GiB are missing", {}} : LayoutFit{};
  });
  EXPECT_FALSE(wait_for(choice, 3));
  EXPECT_FALSE(wait_for(choice, 3));
  EXPECT_EQ(wait_for(choice, 4)->layout.dp, 4);  // a node has come
  is_short = false;
  EXPECT_FALSE(wait_for(choice, 3));
  choice.begin();
  EXPECT_EQ(choice.shortage(), "");
  EXPECT_EQ(wait_for(choice, 3)->layout.dp, 2);
}

TEST(LayoutChoice, NodesThatComeOrGoDuringACheckCount) {
  LayoutChoice choice(kBatch12, [](const NodeLayout&, int64_t) { return LayoutFit{}; });
  EXPECT_FALSE(choice.poll(3));
  EXPECT_EQ(wait_for(choice, 2)->layout.dp, 2);
}

TEST(MissingHosts, ANameMayBeQualified) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(missing_hosts({"n1", "n2", "n3"}, {"n3", "n1"}), Names({"n2"}));
  EXPECT_EQ(missing_hosts({"n1", "n2"}, {"n1.cluster.org"}), Names({"n2"}));
  EXPECT_EQ(missing_hosts({"n1.cluster.org", "n2.cluster.org"}, {"n2"}), Names({"n1.cluster.org"}));
  EXPECT_EQ(missing_hosts({"n1", "n10"}, {"n10.org"}), Names({"n1"})) << "no prefix of a label";
  EXPECT_EQ(missing_hosts({"n1.a", "n1.b"}, {"n1.b"}), Names({"n1.a"}));
  EXPECT_EQ(missing_hosts({"n1", "n1.b"}, {"n1.b"}), Names({"n1"})) << "the same name comes first";
}

TEST(MissingHosts, AnAgentStandsForOneHost) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(missing_hosts({"n1", "n1", "n2"}, {"n1"}), Names({"n1", "n2"}));
  EXPECT_EQ(missing_hosts({"n1", "n2"}, {"other", "another"}), Names({"n1", "n2"}));
  EXPECT_EQ(missing_hosts({}, {"n1"}), Names());
}

TEST(LayoutChoice, WithoutElasticThereIsOne) {
  LayoutChoice choice({{4, 4}}, nullptr);
  EXPECT_FALSE(choice.is_elastic());
  EXPECT_FALSE(choice.poll(3));
  EXPECT_FALSE(choice.is_checking());
  EXPECT_TRUE(choice.poll(4));
}

TEST(LayoutChoice, BelowTheFewestNodesItOnlySaves) {
  LayoutChoice choice({{4, 4}, {3, 3}, {2, 2}}, nullptr, 3), fixed({{4, 4}, {2, 2}}, nullptr, 4);
  EXPECT_TRUE(choice.is_elastic());
  EXPECT_FALSE(fixed.is_elastic());
  EXPECT_FALSE(choice.poll(2));
  EXPECT_FALSE(fixed.poll(3));
  choice.allow_all();
  fixed.allow_all();
  EXPECT_EQ(choice.poll(2)->layout.num_nodes, 2);
  EXPECT_EQ(fixed.poll(3)->layout.num_nodes, 2);
  EXPECT_FALSE(fixed.is_elastic());  // as it was asked for
}

}  // namespace
}  // namespace weft
