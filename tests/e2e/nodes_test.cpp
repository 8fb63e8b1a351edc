// tests/e2e/nodes_test.cpp: `weft train --nodes 2` with two agents of this machine, on the
// loopback.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <memory>
#include <sstream>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

const StartOptions kOnLo{.env = {{"WEFT_NODES_ON_LO", "1"}}};

// A run on two nodes: the first one's program, and the agent of the second.
class TwoNodes {
 public:
  TwoNodes(const TinyRun& run, const std::string& name, std::vector<std::string> sets)
      : run_(run), name_(name) {
    sets.push_back("name=" + name);
    train_ = std::make_unique<Program>(run.words("train", sets, {"--nodes", "2"}), kOnLo);
  }
  void join() {
    ASSERT_TRUE(train_->wait_until([&] { return !endpoint().empty(); }));
    agent_ = std::make_unique<Program>(
        std::vector<std::string>{"agent", "--join", endpoint(), "--secret-file", secret(), "--wait",
                                 "5"},
        kOnLo);
  }
  std::string secret() const { return run_.dir(name_) / "secret"; }
  Program& train() { return *train_; }
  Program& agent() { return *agent_; }

 private:
  // The address on which the supervisor listens, from the system: its output is in a file of its
  // own.
  std::string endpoint() const {
    std::istringstream lines(slurp(fmt::format("/proc/{}/net/tcp", train_->pid())));
    const std::string sockets = own_sockets();
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string sl, local, remote, state, skip, inode;
      words >> sl >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skip;
      words >> inode;
      if (state != "0A" || sockets.find(fmt::format("socket:[{}]", inode)) == std::string::npos)
        continue;
      return fmt::format("127.0.0.1:{}", std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
    return "";
  }
  std::string own_sockets() const {
    std::string all;
    std::error_code gone;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", train_->pid()), gone))
      all += std::filesystem::read_symlink(entry.path(), gone).string() + " ";
    return all;
  }

  const TinyRun& run_;
  std::string name_;
  std::unique_ptr<Program> train_, agent_;
};

const std::vector<std::string> kExact = {"parallel.dp=4", "parallel.mode=exact",
                                         "parallel.shard=zero3", "train.micro_batch=1"};

TEST(Nodes, TwoNodesTrainTheBitsOfOneMachine) {
  const TinyRun run;
  std::vector<std::string> sets = kExact;
  sets.push_back("name=calm");
  run.train_well(sets);
  TwoNodes nodes(run, "nodes", kExact);
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
  TwoNodes first(run, "nodes", sets);
  first.join();
  const auto metrics = run.dir("nodes") / "metrics.jsonl";
  ASSERT_TRUE(first.train().wait_until([&] { return slurp(metrics).size() > 100; }));
  first.train().send(SIGTERM);
  EXPECT_EQ(first.train().wait().exit_code, 143);
  EXPECT_EQ(first.agent().wait().exit_code, 143);
  TwoNodes second(run, "nodes", sets);
  second.join();
  EXPECT_EQ(second.train().wait().exit_code, 0);
  EXPECT_EQ(second.agent().wait().exit_code, 0);
  EXPECT_EQ(hash_of(run.dir("calm")), hash_of(run.dir("nodes")));
}

TEST(Nodes, AnAgentNeedsTheSecretAndARun) {
  const TinyRun run;
  const auto join = [&](const std::string& secret) {
    return run_to_end({"agent", "--join", "127.0.0.1:1", "--secret-file", secret, "--wait", "1"});
  };
  Ended ended = join(run / "nothing");
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"nothing", "cannot be read"});
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

}  // namespace
}  // namespace weft::testing
