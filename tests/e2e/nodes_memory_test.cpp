// tests/e2e/nodes_memory_test.cpp: a node that gets no memory for snapshots, or for copies of
// another node's: the run says so and trains on, and goes back to a checkpoint where it must.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/e2e/node_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

// The environment of an agent whose system calls, and those of its ranks, fail by these rules.
StartOptions failing(const std::string& rules) {
  StartOptions options = kOnLo;
  options.env.merge(fault_env(rules));
  return options;
}

std::vector<std::string> sets_of_four(const TinyRun& run, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"parallel.dp=4", "train.micro_batch=1", "launch.max_restarts=4"});
  return sets_of(run, "calm", more);
}

bool trains_on(NodeRun& nodes, const TinyRun& run, size_t more) {
  const size_t steps = num_steps(run, "hit") + more;
  return nodes.train().wait_until([&] { return num_steps(run, "hit") >= steps; });
}

std::string log_of(const TinyRun& run, int rank) {
  return slurp(run.dir("hit") / fmt::format("log/rank-{:05}.log", rank));
}

// The second node's agent keeps nothing of the first node's. A rank of that node dies: memory has
// all that is needed. The node is lost: it has not.
TEST(NodesMemory, NoneForCopiesOfAnotherNode) {
  const TinyRun run;
  const std::vector<std::string> more = sets_of_four(run, {"parallel.shard=zero3"});
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join(failing("mmap:ENOMEM:weft-snapshots-of-partner:2"));
  ASSERT_TRUE(trains_on(nodes, run, 40));
  ::kill(nodes.ranks_of(0).at(1), SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_events(run, "hit", "recovered") == 1; }));
  EXPECT_EQ(num_events(run, "hit", "started"), 1u);  // storage was not read
  for (const int rank : {0, 1})
    expect_parts(log_of(run, rank), {fmt::format("rank {}: no copies of its snapshots on ", rank)});
  for (const int rank : {2, 3})
    EXPECT_FALSE(contains(log_of(run, rank), "no copies of its snapshots on")) << rank;
  ASSERT_TRUE(trains_on(nodes, run, 20));
  ::kill(children_of(nodes.train().pid()).at(0), SIGKILL);  // the first node's agent
  const Ended train = nodes.train().wait(), agent = nodes.agent().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(agent.exit_code, 0) << agent.err;
  expect_parts(train.err, {"continuing from step ", "continuing from the newest checkpoint, ",
                           " (restart 2 of 4)"});
  EXPECT_EQ(num_events(run, "hit", "node_lost"), 1u) << train.err;
  const std::vector<Json> started = event_lines(run.dir("hit"), "started");
  ASSERT_EQ(started.size(), 2u) << train.err;
  EXPECT_GE(started[1].at("step").as_int(), 30);
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// Its own snapshots have copies on the first node: it is replaced from these. The spare has memory,
// so that the first node can be lost next.
TEST(NodesMemory, ANodeWithoutMemoryForCopiesIsReplacedFromMemory) {
  const TinyRun run;
  const std::vector<std::string> more = sets_of_four(run);
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join(failing("mmap:ENOMEM:weft-snapshots-of-partner:2"));
  ASSERT_TRUE(trains_on(nodes, run, 5));
  const std::unique_ptr<Program> spare = nodes.new_agent();
  ASSERT_TRUE(trains_on(nodes, run, 35));
  nodes.agent().send(SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_events(run, "hit", "recovered") == 1; }));
  ASSERT_TRUE(trains_on(nodes, run, 20));
  ::kill(children_of(nodes.train().pid()).at(0), SIGKILL);  // the spare has copies of this one
  const Ended train = nodes.train().wait(), second = spare->wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(num_events(run, "hit", "recovered"), 2u) << train.err;
  EXPECT_EQ(num_events(run, "hit", "started"), 1u) << train.err;  // storage was not read
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// Without slots on one node there is no common step: no rank takes snapshots. A rank's death, and
// then its node's, send the run to the newest checkpoint.
TEST(NodesMemory, NoneForTheSlotsOfOneNodesRanks) {
  const TinyRun run;
  const std::vector<std::string> more = sets_of_four(run);
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  // Of a rank: headers, layout, and then three slots. The agent maps headers twice in each start.
  nodes.join(failing("mmap:ENOMEM:weft-snapshots:5:1"));
  ASSERT_TRUE(trains_on(nodes, run, 40));
  const std::unique_ptr<Program> spare = nodes.new_agent();
  ::kill(nodes.ranks_of(0).at(1), SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_events(run, "hit", "started") == 2; }));
  ASSERT_TRUE(trains_on(nodes, run, 40));
  nodes.agent().send(SIGKILL);
  const Ended train = nodes.train().wait(), second = spare->wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(count(train.err, "rank 2 has no memory for snapshots: cannot map "), 2)
      << train.err;  // of both starts in which that node takes part
  expect_parts(train.err, {"; where a rank dies, all start from a checkpoint"});
  EXPECT_EQ(count(train.err, "continuing from the newest checkpoint, "), 2) << train.err;
  EXPECT_EQ(num_events(run, "hit", "recovered"), 0u) << train.err;
  EXPECT_EQ(num_events(run, "hit", "node_lost"), 1u) << train.err;
  const std::vector<Json> started = event_lines(run.dir("hit"), "started");
  ASSERT_EQ(started.size(), 3u) << train.err;
  EXPECT_GE(started[1].at("step").as_int(), 30);
  EXPECT_GE(started[2].at("step").as_int(), 60);
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

// A spare that cannot hold what the lost node's partner has: it starts from the newest checkpoint.
TEST(NodesMemory, NoneInASpareForTheSlotsOfALostNode) {
  const TinyRun run;
  const std::vector<std::string> more = sets_of_four(run);
  run.train_well(more);
  NodeRun nodes(run, "hit", more);
  nodes.join();
  ASSERT_TRUE(trains_on(nodes, run, 5));
  const std::unique_ptr<Program> spare = nodes.new_agent(failing("mmap:ENOMEM:weft-snapshots:3:1"));
  ASSERT_TRUE(trains_on(nodes, run, 35));
  nodes.agent().send(SIGKILL);
  const Ended train = nodes.train().wait(), second = spare->wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  expect_parts(train.err, {"node 1 could not fetch the copies of its snapshots: cannot map ",
                           "continuing from the newest checkpoint, ", " (restart 2 of 4)",
                           "rank 2 has no memory for snapshots: cannot map ",
                           "; where a rank dies, all start from a checkpoint"});
  EXPECT_EQ(num_events(run, "hit", "recovery_failed"), 1u) << train.err;
  EXPECT_EQ(num_events(run, "hit", "started"), 2u) << train.err;
  expect_same_run(run, "calm", "hit");
  EXPECT_FALSE(is_any_left(run));
}

}  // namespace
}  // namespace weft::testing
