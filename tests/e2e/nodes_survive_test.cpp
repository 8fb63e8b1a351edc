// tests/e2e/nodes_survive_test.cpp: ranks of several nodes that are killed, and runs that end as if
// none had been.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "tests/e2e/node_run.h"
#include "tests/e2e/spoiled_slots.h"

namespace weft::testing {
namespace {

// Lets it train a little further, then kills a rank of either node. False: it has ended.
bool kill_one(NodeRun& nodes, const TinyRun& run, const std::string& name, std::mt19937& dice) {
  const size_t steps = num_steps(run, name) + 1 + dice() % 12;
  if (!nodes.train().wait_until([&] { return num_steps(run, name) >= steps; })) return false;
  const std::vector<pid_t> ranks = nodes.ranks_of(static_cast<int>(dice() % 2));
  if (!ranks.empty()) ::kill(ranks[dice() % ranks.size()], SIGKILL);
  return !ranks.empty();
}

void expect_good_end(NodeRun& nodes, const TinyRun& run, const std::string& name) {
  const Ended train = nodes.train().wait(), agent = nodes.agent().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(agent.exit_code, 0) << agent.err;
  EXPECT_GE(num_events(run, name, "recovered"), 1u) << train.err;
  EXPECT_EQ(num_events(run, name, "started"), 1u) << train.err;  // storage was not read
  expect_parts(train.err, {"was killed by SIGKILL", "; continuing from step "});
  expect_same_run(run, "calm", name);
  EXPECT_FALSE(is_any_left(run));
}

class NodesSurviveIn : public ::testing::TestWithParam<Variant> {};

TEST_P(NodesSurviveIn, KilledRanksChangeNothing) {
  std::mt19937 dice(3);
  const TinyRun run;
  const std::vector<std::string> more =
      sets_of(run, "calm", with({"train.steps=80"}, GetParam().sets));
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  for (int kills = 0; kills < 3 && kill_one(nodes, run, "hit", dice);) ++kills;
  expect_good_end(nodes, run, "hit");
}

// Without sharding, the state is distributed over the slots of both nodes. With tp 2, both nodes
// hold replicas.
INSTANTIATE_TEST_SUITE_P(
    Layouts, NodesSurviveIn,
    ::testing::Values(Variant{"dp4", {"parallel.dp=4", "train.micro_batch=1"}},
                      Variant{"exact_tp2",
                              {"parallel.dp=2", "parallel.tp=2", "parallel.mode=exact"}},
                      Variant{"exact_zero3",
                              {"parallel.dp=4", "train.micro_batch=1", "parallel.shard=zero3",
                               "parallel.mode=exact", "launch.snapshot_every=7"}}),
    kVariantName);

TEST(NodesSurvive, SeveralAtOnceAndDuringRecovery) {
  const TinyRun run;
  const std::vector<std::string> more =
      sets_of(run, "calm",
              {"parallel.dp=4", "train.micro_batch=1", "parallel.shard=zero3", "train.steps=100"});
  run.train_well(more);
  std::mt19937 dice(5);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(kill_one(nodes, run, "hit", dice));
  for (const pid_t rank : nodes.ranks_of(1)) ::kill(rank, SIGKILL);
  for (int i = 0; i < 4; ++i) {  // some of them while the last ones are being replaced
    std::this_thread::sleep_for(std::chrono::milliseconds(dice() % 120));
    const std::vector<pid_t> ranks = nodes.ranks_of(i % 2);
    if (!ranks.empty()) ::kill(ranks[dice() % ranks.size()], SIGKILL);
  }
  expect_good_end(nodes, run, "hit");
}

// Found by the others' deadline; it does not park, so its agent kills it.
TEST(NodesSurvive, ARankThatHangsIsReplaced) {
  const TinyRun run;
  const std::vector<std::string> more = sets_of(
      run, "calm",
      {"parallel.dp=4", "train.micro_batch=1", "launch.hang_timeout_s=2", "train.steps=80"});
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 5; }));
  const std::vector<pid_t> ranks = nodes.ranks_of(1);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(nodes.agent().wait().exit_code, 0);
  EXPECT_EQ(num_events(run, "hit", "rank_hung"), 1u);
  ASSERT_EQ(num_events(run, "hit", "rank_died"), 1u);
  expect_parts(event_lines(run.dir("hit"), "rank_died")[0].at("message").as_string(),
               {"rank 3 hung (", "a signal has stopped it (SIGSTOP)", ") and was killed"});
  EXPECT_EQ(num_events(run, "hit", "started"), 1u) << train.err;
  expect_same_run(run, "calm", "hit");
}

// kill -9 of an agent, of either node: a spare, or the first node's next agent, gets the slots from
// the partner, and the others keep their processes.
class LostNode : public ::testing::TestWithParam<Variant> {};

TEST_P(LostNode, IsReplacedFromItsPartnersMemory) {
  const TinyRun run;
  std::vector<std::string> more = {"parallel.dp=4", "train.micro_batch=1", "train.steps=140"};
  more.insert(more.end(), GetParam().sets.begin(), GetParam().sets.end());
  more = sets_of(run, "calm", more);
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 5; }));
  const std::unique_ptr<Program> spare = nodes.new_agent();
  const std::vector<pid_t> kept = nodes.ranks_of(0);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 40; }));
  nodes.agent().send(SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_events(run, "hit", "recovered") == 1; }));
  EXPECT_EQ(nodes.ranks_of(0), kept);
  const size_t steps = num_steps(run, "hit") + 20;
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= steps; }));
  ::kill(children_of(nodes.train().pid()).at(0), SIGKILL);  // the first node's agent
  const Ended train = nodes.train().wait(), second = spare->wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(num_events(run, "hit", "recovered"), 2u) << train.err;
  EXPECT_EQ(num_events(run, "hit", "node_lost"), 2u);
  EXPECT_EQ(num_events(run, "hit", "started"), 1u) << train.err;  // storage was not read
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

INSTANTIATE_TEST_SUITE_P(Layouts, LostNode,
                         ::testing::Values(Variant{"exact_zero3",
                                                   {"parallel.shard=zero3", "parallel.mode=exact"}},
                                           Variant{"dp4", {}}),
                         kVariantName);

// What a rank cannot read will not be there the next time either: all nodes go back to the newest
// checkpoint. From then on memory is good again, and generations are counted through.
TEST(NodesSurvive, MemoryThatCannotBeReadSendsTheRunToStorage) {
  const TinyRun run;
  const std::vector<std::string> more =
      sets_of(run, "calm", {"parallel.dp=4", "train.micro_batch=1", "launch.max_restarts=4"});
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 40; }));
  ASSERT_TRUE(spoil_layouts(slot_segments(nodes.agent().pid()).at(0), 2));
  ::kill(nodes.ranks_of(0).at(1), SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_events(run, "hit", "started") == 2; }));
  const size_t steps = num_steps(run, "hit") + 20;
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= steps; }));
  ::kill(nodes.ranks_of(1).at(1), SIGKILL);
  const Ended train = nodes.train().wait(), agent = nodes.agent().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(agent.exit_code, 0) << agent.err;
  expect_parts(train.err,
               {" cannot read the snapshots of step ", "continuing from the newest checkpoint, ",
                " (restart 2 of 4)", ", as generation 3"});
  EXPECT_EQ(num_events(run, "hit", "recovery_failed"), 1u) << train.err;
  EXPECT_EQ(generations_of(run, "hit"), (std::vector<int64_t>{0, 2, 3})) << train.err;
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// The partner says that it has the lost node's copies, and then cannot give them.
TEST(NodesSurvive, CopiesThatCannotBeFetchedSendTheRunToStorage) {
  const TinyRun run;
  const std::vector<std::string> more =
      sets_of(run, "calm", {"parallel.dp=4", "train.micro_batch=1", "launch.max_restarts=4"});
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 5; }));
  const std::unique_ptr<Program> spare = nodes.new_agent();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "hit") >= 40; }));
  const std::vector<std::string> segments = slot_segments(children_of(nodes.train().pid()).at(0));
  ASSERT_EQ(segments.size(), 2u);
  for (const pid_t rank : nodes.ranks_of(1)) ::kill(rank, SIGSTOP);  // no more copies come
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_TRUE(spoil_sizes(segments[1], 2));
  nodes.agent().send(SIGKILL);
  const Ended train = nodes.train().wait(), second = spare->wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  expect_parts(train.err, {"node 1 could not fetch the copies of its snapshots: ",
                           "continuing from the newest checkpoint, ", " (restart 2 of 4)"});
  EXPECT_EQ(num_events(run, "hit", "recovery_failed"), 1u) << train.err;
  EXPECT_EQ(generations_of(run, "hit"), (std::vector<int64_t>{0, 2})) << train.err;
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

}  // namespace
}  // namespace weft::testing
