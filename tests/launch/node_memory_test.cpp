// tests/launch/node_memory_test.cpp: a job on several nodes whose ranks outlive others.
#include "tests/launch/node_job.h"

namespace weft::testing {
namespace {

class NodeMemory : public NodeJob {
 protected:
  void start(const std::vector<std::string>& what, std::map<std::string, std::string> env = {}) {
    env["SNAPSHOTS"] = "1";
    train(what, env);
    agent_ = env.contains("PARK_MS") ? join({{"PARK_MS", env["PARK_MS"]}}) : join();
  }
  std::unique_ptr<Program> agent_;
};

TEST_F(NodeMemory, ALostNodesPlaceIsTakenAndAllGoOnFromMemory) {
  start({"survive"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const auto spare = join();
  ASSERT_TRUE(train_->says("has joined as a spare"));
  agent_->send(SIGKILL);
  ASSERT_TRUE(train_->says("event continued -1 7")) << train_->out();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  const std::string text = train_->out();
  const size_t lost = text.find("event node_lost"), warned = text.find("warning: node 1, ");
  const size_t replaced = text.find("node 1 is ", lost);
  EXPECT_LT(warned, replaced) << text;
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(train_->count(fmt::format("rank {} replaces another", r)), r < 2 ? 0 : 1);
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
}

// The other node's ranks notice before its loss is known; what they say is not the cause.
TEST_F(NodeMemory, ALostNodeIsTheCauseWhoeverNoticedItFirst) {
  start({"survive"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const auto spare = join();
  ASSERT_TRUE(train_->says("has joined as a spare"));
  const std::vector<pid_t> ranks = agent_->children();
  agent_->send(SIGSTOP);
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  ASSERT_TRUE(train_->says("\ncause: ")) << train_->out();
  agent_->send(SIGKILL);
  ASSERT_TRUE(train_->says("event continued -1 7")) << train_->out();
  EXPECT_TRUE(train_->says("\ncause: node 1, ")) << train_->out();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
}

// It writes for longer than ranks have to park.
TEST_F(NodeMemory, RankZeroFinishesWhateverBecomesOfTheOthers) {
  for (const char* dying : {"1", "3"}) {
    start({"end", dying}, {{"PARK_MS", "300"}});
    EXPECT_EQ(train_->wait().code(), 0) << train_->out();
    EXPECT_EQ(agent_->wait().code(), 0) << agent_->out();
    const std::string text = train_->out();
    EXPECT_NE(text.find("rank 0 has finished"), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("event ended {} rank {} was killed", dying, dying)),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("generation 1"), std::string::npos) << text;
  }
}

TEST_F(NodeMemory, ARankThatParksWhileRankZeroFinishesIsNotWaitedFor) {
  start({"end_parks", "3"});
  EXPECT_EQ(train_->wait().code(), 0) << train_->out();
  EXPECT_EQ(agent_->wait().code(), 0) << agent_->out();
  EXPECT_EQ(train_->count("rank 0 has finished"), 1) << train_->out();
}

TEST_F(NodeMemory, RankZeroThatDiesWhileItFinishesIsReplaced) {
  start({"end_dies", "3"});
  EXPECT_EQ(train_->wait().code(), 0) << train_->out();
  EXPECT_EQ(train_->count("event started -1 generation 1"), 1) << train_->out();
}

// No socket can be opened for the next generation's store: the end is reported, and the agents
// leave with it. UBSan opens a pipe before it looks at an object, and reports one that it cannot
// look at: it needs the descriptors that this test denies.
#ifndef __SANITIZE_ADDRESS__
TEST_F(NodeMemory, ASupervisorThatCannotGoOnSaysWhy) {
  start({"survive"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const rlimit none{3, 3};
  ASSERT_EQ(::prlimit(train_->pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  ::kill(agent_->children().at(1), SIGKILL);
  EXPECT_EQ(train_->wait().code(), 1) << train_->out();
  EXPECT_EQ(train_->count("event failed -1 the supervisor cannot go on: cannot listen on "), 1)
      << train_->out();
  EXPECT_EQ(agent_->wait().code(), 1) << agent_->out();
  EXPECT_EQ(agent_->count("joining again"), 0) << agent_->out();
}
#endif

TEST_F(NodeMemory, ASignalWhileANodeIsMissingSaysWhatIsLost) {
  start({"survive"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent_->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  EXPECT_EQ(train_->count("event node_lost 2 node 1, "), 1) << train_->out();  // not only later
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  const std::string text = train_->out();
  EXPECT_NE(text.find("event failed -1 node 1, "), std::string::npos) << text;
  EXPECT_NE(text.find("; SIGTERM: no other node has taken its place, so step "), std::string::npos)
      << text;
  EXPECT_NE(text.find("the steps since the newest checkpoint are lost"), std::string::npos) << text;
  EXPECT_EQ(train_->count("event node_lost"), 1) << text;
  EXPECT_EQ(text.find("nothing to save"), std::string::npos) << text;
}

// Its other rank dies first, and is not forgotten while nobody takes the node's place.
TEST_F(NodeMemory, ADeathIsReportedBeforeTheWaitForANode) {
  start({"survive", "300"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const std::vector<pid_t> own = children_of(train_->children().at(0));
  ASSERT_EQ(own.size(), 2U);
  ::kill(own[1], SIGKILL);
  ASSERT_TRUE(train_->says("event ended 1 rank 1 was killed")) << train_->out();
  agent_->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  EXPECT_EQ(train_->count("event node_lost 2 node 1, "), 1) << train_->out();
  EXPECT_EQ(train_->count("event died 1 rank 1 was killed"), 1) << train_->out();
  const auto spare = join();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  EXPECT_EQ(train_->count("event died"), 1) << train_->out();
  EXPECT_EQ(train_->count("event node_lost"), 1) << train_->out();
}

// Its ranks take a second to park.
TEST_F(NodeMemory, ANodeThatIsLostAfterASignalIsNotWaitedFor) {
  start({"survive", "1000"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const std::vector<pid_t> ranks = agent_->children();
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGKILL);
  ASSERT_TRUE(train_->says("event ended 3 rank 3 was killed")) << train_->out();
  train_->send(SIGTERM);
  ASSERT_TRUE(train_->says("event stopping -1 SIGTERM")) << train_->out();
  agent_->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_TRUE(train_->says("SIGTERM: no other node has taken its place")) << train_->out();
}

// Its ranks take a second to start.
TEST_F(NodeMemory, ASignalWhileTheFirstNodeRecoversIsSavedFor) {
  start({"survive", "1000"});
  ASSERT_TRUE(all_train(4)) << train_->out();
  const std::vector<pid_t> own = train_->children();
  ASSERT_EQ(own.size(), 1U);
  ::kill(own[0], SIGKILL);
  ASSERT_TRUE(train_->says("rank 0 replaces another")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(agent_->wait().code(), 143) << agent_->out();
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1) << train_->out();
  EXPECT_EQ(train_->count("finishing the current step, then saving"), 1) << train_->out();
}

}  // namespace
}  // namespace weft::testing
