// tests/e2e/nodes_test.cpp: `weft train --nodes 2` with two agents of this machine, on the
// loopback.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/e2e/node_run.h"

namespace weft::testing {
namespace {

const std::vector<std::string> kExact = {"parallel.dp=4", "parallel.mode=exact",
                                         "parallel.shard=zero3", "train.micro_batch=1"};

TEST(Nodes, TwoNodesTrainTheBitsOfOneMachine) {
  const TinyRun run;
  std::vector<std::string> sets = kExact;
  sets.push_back("name=calm");
  run.train_well(sets);
  NodeRun nodes(run, "nodes", kExact);
  nodes.join();
  const Ended train = nodes.train().wait(), agent = nodes.agent().wait();
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_EQ(agent.exit_code, 0) << agent.err;
  expect_parts(train.err,
               {"waiting for 1 more node", "weft agent --join 127.0.0.1:", "node 1 is "});
  expect_parts(agent.err, {"node 1 of 2: starting ranks 2 to 3", "the run has finished"});
  for (const char* part : {"", "final"})
    EXPECT_EQ(hash_of(run.dir("calm") / part), hash_of(run.dir("nodes") / part)) << part;
  for (const char* key : {"loss", "grad_norm"})
    EXPECT_EQ(metric_texts(run.dir("calm"), key), metric_texts(run.dir("nodes"), key)) << key;
  struct stat secret {};
  ASSERT_EQ(::stat(nodes.secret().c_str(), &secret), 0);
  EXPECT_EQ(secret.st_mode & 0777, 0600u);
  EXPECT_FALSE(std::filesystem::exists(run.dir("nodes") / ".nodes"));
}

TEST(Nodes, ASignalSavesOnAllNodesAndTheRunResumes) {
  const TinyRun run;
  std::vector<std::string> sets = kExact;
  sets.insert(sets.end(), {"train.steps=30", "name=calm"});
  run.train_well(sets);
  sets.pop_back();
  NodeRun first(run, "nodes", sets);
  first.join();
  const auto metrics = run.dir("nodes") / "metrics.jsonl";
  ASSERT_TRUE(first.train().wait_until([&] { return slurp(metrics).size() > 100; }));
  first.train().send(SIGTERM);
  EXPECT_EQ(first.train().wait().exit_code, 143);
  EXPECT_EQ(first.agent().wait().exit_code, 143);
  NodeRun second(run, "nodes", sets);
  second.join();
  EXPECT_EQ(second.train().wait().exit_code, 0);
  EXPECT_EQ(second.agent().wait().exit_code, 0);
  EXPECT_EQ(hash_of(run.dir("calm")), hash_of(run.dir("nodes")));
}

// While the first one waits for its nodes, and while it trains.
TEST(Nodes, ASecondSupervisorIsRefused) {
  const TinyRun run;
  std::vector<std::string> sets = kExact;
  sets.push_back("train.steps=100000");
  NodeRun first(run, "nodes", sets);
  first.find_endpoint();
  const auto expect_refused = [&] {
    NodeRun second(run, "nodes", sets);
    const Ended ended = second.train().wait();
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"another process is training in ",
                             fmt::format(": process {} on ", first.train().pid())});
    EXPECT_EQ(ended.err.find("waiting for"), std::string::npos) << ended.err;
  };
  expect_refused();
  first.join();
  const auto metrics = run.dir("nodes") / "metrics.jsonl";
  ASSERT_TRUE(first.train().wait_until([&] { return slurp(metrics).size() > 100; }));
  expect_refused();
  first.agent().send(SIGKILL);
  ASSERT_TRUE(first.train().wait_until(
      [&] { return contains(slurp(run.dir("nodes") / "events.jsonl"), "node_lost"); }));
  expect_refused();
  first.join();
  const size_t size = slurp(metrics).size();
  ASSERT_TRUE(first.train().wait_until([&] { return slurp(metrics).size() > size + 1000; }));
  first.train().send(SIGTERM);
  EXPECT_EQ(first.train().wait().exit_code, 143);
  EXPECT_EQ(first.agent().wait().exit_code, 143);
}

// A Hugging Face cache of one node, with the model of a hub name.
StartOptions cache_with(const TinyRun& run, const std::string& name, double eps) {
  const std::filesystem::path cache = run / name;
  std::filesystem::create_directories(cache / "models--Org--Tiny/snapshots/main");
  run.change_config("rms_norm_eps", Json(eps));
  run.write(name + "/models--Org--Tiny/snapshots/main/config.json",
            slurp(run / "model/config.json"));
  StartOptions options = kOnLo;
  options.env["HF_HUB_CACHE"] = cache;
  return options;
}

// Files are compared at the start, and when a spare takes over.
TEST(Nodes, AnotherModelFileOnANodeIsRefused) {
  const TinyRun run;
  const StartOptions ours = cache_with(run, "a", 1e-6), other = cache_with(run, "b", 1e-5);
  const std::vector<std::string> sets = {"parallel.dp=2", "model.path=Org/Tiny",
                                         "train.steps=100000"};
  const auto expect_refused = [](const Ended& ended) {
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"rank 1 on node 1 (", "does not match rank 0 on node 0", "model file",
                             "config.json, "});
  };
  {
    NodeRun nodes(run, "start", sets, 2, ours);
    nodes.join(other);
    expect_refused(nodes.train().wait());
    EXPECT_EQ(num_steps(run, "start"), 0u);
  }
  NodeRun nodes(run, "spare", sets, 2, ours);
  nodes.join(ours);
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "spare") >= 5; }));
  const std::unique_ptr<Program> spare = nodes.new_agent(other);
  nodes.agent().send(SIGKILL);
  expect_refused(nodes.train().wait());
}

TEST(Nodes, AStartWithTooFewNodesIsRecorded) {
  const TinyRun run;
  std::vector<std::string> sets = kExact;
  sets.insert(sets.end(), {"train.steps=2", "launch.join_timeout_s=1"});
  NodeRun alone(run, "nodes", sets);
  EXPECT_EQ(alone.train().wait().exit_code, 75);
  const std::vector<Json> failed = event_lines(run.dir("nodes"), "rank failed");
  ASSERT_EQ(failed.size(), 1u);
  expect_parts(failed[0].at("message").as_string(), {"1 of 2 nodes joined within 1 s"});
  sets.back() = "launch.join_timeout_s=60";
  NodeRun both(run, "nodes", sets);  // the record is in nobody's way
  both.join();
  EXPECT_EQ(both.train().wait().exit_code, 0);
  EXPECT_EQ(both.agent().wait().exit_code, 0);
}

TEST(Nodes, AnAgentNeedsTheSecretAndARun) {
  const TinyRun run;
  const auto join = [&](const std::string& secret) {
    return run_to_end({"agent", "--join", "127.0.0.1:1", "--secret-file", secret, "--wait", "1"});
  };
  Ended ended = join(run / "nothing");
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"nothing", "cannot be read"});
  expect_parts(ended.err, {"waiting up to 1 s for the secret file"});
  std::filesystem::create_symlink("loop", run / "loop");  // as a folder that is closed to this user
  ended = join(run / "loop");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.err.find("waiting up to"), std::string::npos) << ended.err;
  run.write("open", "0123456789abcdef\n");
  ended = join(run / "open");
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"open"});
  ::chmod((run / "open").c_str(), 0600);
  ended = join(run / "open");
  EXPECT_EQ(ended.exit_code, 75);
  expect_parts(ended.err, {"the supervisor at 127.0.0.1:1 cannot be reached within 1 s"});
  EXPECT_EQ(ended.err.find("0123456789abcdef"), std::string::npos);
}

TEST(Nodes, AnAgentWaitsForASecretThatComesLater) {
  const TinyRun run;
  Program agent({"agent", "--join", "127.0.0.1:1", "--secret-file", run / "secret", "--wait", "2"});
  run.write("draft", "0123456789abcdef\n");
  ::chmod((run / "draft").c_str(), 0600);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it has looked by then, and waits
  std::filesystem::rename(run / "draft", run / "secret");
  const Ended ended = agent.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;  // it has read the secret, and finds no run
  expect_parts(ended.err, {"the supervisor at 127.0.0.1:1 cannot be reached within 2 s"});
}

}  // namespace
}  // namespace weft::testing
