// tests/e2e/elastic_test.cpp: `launch.elastic` with two nodes of this machine, on the loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/e2e/node_run.h"
#include "tests/e2e/spoiled_slots.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

// Four ranks on two nodes; one node alone: dp 2.
const std::vector<std::string> kExactNodes = {"parallel.dp=4", "parallel.mode=exact",
                                              "parallel.shard=zero3", "train.micro_batch=1",
                                              "checkpoint.every=5"};

bool has_logged(const Program& program, const std::string& words) {
  return contains(slurp(fmt::format("/proc/{}/fd/2", program.pid())), words);
}

void expect_calm(const TinyRun& run) {
  EXPECT_EQ(hash_of(run.dir("calm")), hash_of(run.dir("nodes")));
  for (const char* key : {"step", "loss", "grad_norm", "lr"})
    EXPECT_EQ(metric_texts(run.dir("calm"), key), metric_texts(run.dir("nodes"), key)) << key;
}

// The second node is lost after some steps, of which the last checkpoint is far behind. Returns the
// event of the change, or of the last attempt at it.
Json lose_a_node(const TinyRun& run, const std::vector<std::string>& more, size_t attempts = 1,
                 const std::function<void(NodeRun&)>& before = {}) {
  const std::vector<std::string> sets =
      with(kExactNodes, {"train.steps=60", "checkpoint.every=1000"});
  run.train_well(with(sets, {"name=calm"}));
  NodeRun nodes(run, "nodes", with(with(sets, {"launch.elastic=true"}), more));
  nodes.join();
  EXPECT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 12; }));
  if (before) before(nodes);
  nodes.agent().send(SIGKILL);
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  expect_parts(train.err, {"it continues with dp=2 on 1 node", "node 1, ", "was lost",
                           "dp=2 on 1 node, instead of dp=4 on 2 nodes", "restart 1 of "});
  const std::vector<Json> changes = event_lines(run.dir("nodes"), "layout");
  EXPECT_EQ(changes.size(), attempts) << train.err;
  const std::string events = slurp(run.dir("nodes") / "events.jsonl");
  EXPECT_LT(events.find("\"layout\""), events.find("\"finished\"")) << events;
  const Ended asked = run_to_end({"status", run.dir("nodes").string(), "--json"});
  const Json status = parse_json(asked.out, "the status");
  EXPECT_EQ(status.at("layout").at("text").as_string(), "dp=2 on 1 node");
  EXPECT_EQ(status.at("restarts").as_int(), static_cast<int64_t>(attempts));
  expect_calm(run);
  return changes.empty() ? Json() : changes.back();
}

// From the slots of the first node, which has copies of the second's.
TEST(Elastic, ALostNodeIsDoneWithoutFromMemory) {
  const TinyRun run;
  const Json change = lose_a_node(run, {"launch.snapshot_every=3"});
  ASSERT_TRUE(change.is_object());
  EXPECT_EQ(change.at("from").as_string(), "dp=4 on 2 nodes");
  EXPECT_EQ(change.at("to").as_string(), "dp=2 on 1 node");
  expect_parts(change.at("why").as_string(), {"node 1, ", "was lost"});
  const std::vector<Json> recovered = event_lines(run.dir("nodes"), "recovered");
  ASSERT_EQ(recovered.size(), 1u);
  const int64_t step = recovered[0].at("step").as_int();
  EXPECT_GE(step, 9);
  EXPECT_EQ(change.at("source").as_string(), fmt::format("step {} in memory", step));
  EXPECT_LE(recovered[0].at("lost_steps").as_int(), 2 * 3);        // the newest may not be whole
  EXPECT_EQ(event_lines(run.dir("nodes"), "started").size(), 1u);  // storage was not read
  expect_parts(slurp(run.dir("nodes") / "run.yaml"), {"dp: 4", "nodes: 2"});
}

TEST(Elastic, WithoutSnapshotsALostNodeIsDoneWithoutFromStorage) {
  const TinyRun run;
  const Json change = lose_a_node(run, {"launch.snapshot_every=0"});
  ASSERT_TRUE(change.is_object());
  EXPECT_EQ(change.at("source").as_string(), "storage");
  EXPECT_EQ(event_lines(run.dir("nodes"), "started").size(), 2u);
}

// What the new ranks cannot read in memory sends them to storage.
TEST(Elastic, MemoryThatCannotBeReadInAnotherLayoutSendsTheRunToStorage) {
  const TinyRun run;
  const Json change =
      lose_a_node(run, {"launch.snapshot_every=1", "launch.max_restarts=3"}, 2, [](NodeRun& nodes) {
        const auto segments = slot_segments(children_of(nodes.train().pid()).at(0));
        ASSERT_EQ(segments.size(), 2u);
        ASSERT_TRUE(spoil_layouts(segments[0], 2));
      });
  ASSERT_TRUE(change.is_object());
  EXPECT_EQ(change.at("from").as_string(), "dp=4 on 2 nodes");
  EXPECT_EQ(change.at("source").as_string(), "storage");
  EXPECT_EQ(event_lines(run.dir("nodes"), "recovery_failed").size(), 1u);
  EXPECT_EQ(event_lines(run.dir("nodes"), "started").size(), 2u);
}

TEST(Elastic, ANodeThatDoesNotComeIsDoneWithout) {
  const TinyRun run;
  run.train_well(with(kExactNodes, {"name=calm"}));
  NodeRun nodes(run, "nodes",
                with(kExactNodes, {"launch.elastic=true", "launch.join_timeout_s=1"}));
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  expect_parts(train.err, {"1 of 2 nodes joined within 1 s: dp=2 on 1 node"});
  EXPECT_EQ(event_lines(run.dir("nodes"), "layout").size(), 1u);
  expect_calm(run);
}

// A full disk: the run goes on as it is, without costing a restart.
TEST(Elastic, ANodeWaitsWhereNothingCanBeSaved) {
  const TinyRun run;
  StartOptions options = kOnLo;
  options.env.merge(fault_env("write:ENOSPC:checkpoints/step-;write:wait20:metrics.jsonl"));
  NodeRun nodes(run, "nodes",
                with(kExactNodes, {"train.steps=100000", "checkpoint.every=0",
                                   "launch.elastic=true", "launch.join_timeout_s=1"}),
                2, options);
  nodes.find_endpoint();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 6; }));
  nodes.join();
  const std::filesystem::path log = run.dir("nodes") / "log" / "rank-00000.log";
  ASSERT_TRUE(nodes.train().wait_until([&] {
    return slurp(log).find("the nodes that have joined stay spares") != std::string::npos;
  }));
  const size_t steps = num_steps(run, "nodes");
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > steps + 5; }));
  nodes.train().send(SIGTERM);
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 1) << train.err;  // what was asked for could not be saved, either
  EXPECT_EQ(train.err.find("(restart"), std::string::npos) << train.err;
}

// A run that has gone back in memory completes a step before it is asked to save for more nodes:
// the rank that is started anew is held up, and a node joins meanwhile.
TEST(Elastic, GrowthWaitsForAStepAfterARecovery) {
  const TinyRun run;
  NodeRun nodes(run, "nodes",
                with(kExactNodes, {"train.steps=100000", "checkpoint.every=0",
                                   "launch.elastic=true", "launch.snapshot_every=1",
                                   "launch.join_timeout_s=1", "launch.hang_timeout_s=60"}),
                2, slowly(kOnLo));
  nodes.find_endpoint();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 6; }));
  const std::vector<pid_t> before = nodes.ranks_of(0);
  ::kill(before.at(1), SIGKILL);
  pid_t fresh = 0;
  ASSERT_TRUE(nodes.train().wait_until([&] {
    for (const pid_t rank : nodes.ranks_of(0)) {
      if (std::find(before.begin(), before.end(), rank) == before.end()) fresh = rank;
    }
    return fresh != 0;
  }));
  ::kill(fresh, SIGSTOP);
  nodes.join();
  ASSERT_TRUE(
      nodes.train().wait_until([&] { return has_logged(nodes.train(), "has joined as a spare"); }));
  std::this_thread::sleep_for(std::chrono::seconds(4));  // growth would begin after two
  EXPECT_FALSE(has_logged(nodes.train(), "saving after this step"));
  ::kill(fresh, SIGCONT);
  ASSERT_TRUE(nodes.train().wait_until(
      [&] { return event_lines(run.dir("nodes"), "layout").size() == 2; }));
  const size_t steps = num_steps(run, "nodes");
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > steps + 5; }));
  nodes.train().send(SIGTERM);
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 143) << train.err;
  expect_parts(train.err, {"saving after this step, then dp=4 on 2 nodes"});
  run.train_well(
      with(kExactNodes, {"name=calm", fmt::format("train.steps={}", num_steps(run, "nodes"))}));
  expect_calm(run);
}

// Also a run that is not elastic: one node, which would not train alone, has the state in memory.
TEST(Elastic, AStopWhileANodeIsMissingSavesWhatMemoryHas) {
  const TinyRun run;
  NodeRun nodes(
      run, "nodes",
      with(kExactNodes, {"train.steps=100000", "checkpoint.every=0", "launch.snapshot_every=3"}));
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 12; }));
  nodes.agent().send(SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until(
      [&] { return has_logged(nodes.train(), "waiting for another node"); }));
  nodes.train().send(SIGTERM);
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 143) << train.err;
  expect_parts(train.err, {"SIGTERM: saving step ", "SIGTERM: saved at step "});
  const std::vector<Json> stopped = event_lines(run.dir("nodes"), "stopped");
  ASSERT_EQ(stopped.size(), 1u);
  const int64_t step = stopped[0].at("step").as_int();
  EXPECT_GE(step, 6);
  run.train_well(with(kExactNodes, {"name=calm", fmt::format("train.steps={}", step)}));
  expect_calm(run);
}

TEST(Elastic, WhereNobodyJoinsInTimeItSavesWhatMemoryHasAndEnds) {
  const TinyRun run;
  NodeRun nodes(run, "nodes",
                with(kExactNodes, {"train.steps=100000", "checkpoint.every=1000",
                                   "launch.snapshot_every=3", "launch.join_timeout_s=10"}));
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 12; }));
  nodes.agent().send(SIGKILL);
  ASSERT_TRUE(nodes.train().wait_until(
      [&] { return event_lines(run.dir("nodes"), "node_lost").size() == 1; }));
  EXPECT_FALSE(has_logged(nodes.train(), "no other node has joined"));  // recorded before
  const Ended train = nodes.train().wait();
  EXPECT_EQ(train.exit_code, 75) << train.err;
  expect_parts(train.err, {"no other node has joined within 10 s: saving step ",
                           ", which memory had, is saved"});
  EXPECT_TRUE(event_lines(run.dir("nodes"), "stopped").empty());
  const std::vector<Json> saved = event_lines(run.dir("nodes"), "checkpoint");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(event_lines(run.dir("nodes"), "rank failed").size(), 1u);
  run.train_well(with(kExactNodes,
                      {"name=calm", fmt::format("train.steps={}", saved[0].at("step").as_int())}));
  expect_calm(run);
}

// 2 -> 1 -> 2 nodes. The undisturbed run ends where this one was stopped.
TEST(Elastic, ANodeThatJoinsAgainIsTakenBackWithNothingLost) {
  const TinyRun run;
  NodeRun nodes(
      run, "nodes",
      with(kExactNodes, {"train.steps=100000", "launch.elastic=true", "data.shuffle=true"}), 2,
      slowly(kOnLo));
  nodes.join();
  const auto changes = [&] { return event_lines(run.dir("nodes"), "layout"); };
  const auto has = [&](size_t count) {
    return nodes.train().wait_until([&] { return changes().size() >= count; });
  };
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 6; }));
  nodes.agent().send(SIGKILL);
  ASSERT_TRUE(has(1));
  nodes.join();
  ASSERT_TRUE(has(2));
  const size_t steps = num_steps(run, "nodes");
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > steps + 5; }));
  nodes.train().send(SIGTERM);
  const Ended train = nodes.train().wait(), agent = nodes.agent().wait();
  EXPECT_EQ(train.exit_code, 143) << train.err;
  EXPECT_EQ(agent.exit_code, 143) << agent.err;
  expect_parts(train.err, {"joined: saving after this step, then dp=4 on 2 nodes",
                           "from which more nodes join", "dp=4 on 2 nodes, instead of dp=2 on 1"});
  EXPECT_EQ(train.err.find("restart 2"), std::string::npos) << train.err;
  EXPECT_EQ(changes()[1].at("to").as_string(), "dp=4 on 2 nodes");
  EXPECT_EQ(event_lines(run.dir("nodes"), "stopped").size(), 1u);
  run.train_well(with(
      kExactNodes,
      {"name=calm", fmt::format("train.steps={}", num_steps(run, "nodes")), "data.shuffle=true"}));
  expect_calm(run);
}

}  // namespace
}  // namespace weft::testing
