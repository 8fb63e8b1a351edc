// tests/launch/node_silence_test.cpp: processes of a job on several nodes that stand still.
#include "tests/launch/node_job.h"

namespace weft {
namespace {

// T: stopped; Z: ended, and not reaped; 0: gone.
char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? '\0' : text[name_end + 2];
}

bool has_ended(pid_t pid) { return state_of(pid) == 'Z' || state_of(pid) == '\0'; }

// An agent stops its ranks after 3 s of silence, a rank ends after 4.5 s, a node is lost after 6 s.
class NodeSilence : public testing::NodeJob {
 protected:
  const std::map<std::string, std::string> silence_ = {{"SILENCE_MS", "3000"}};

  void start_all() {
    train({"train"}, silence_);
    agent_ = join(silence_);
    ASSERT_TRUE(all_train(4)) << train_->out();
    const std::vector<pid_t> own = train_->children();
    ASSERT_EQ(own.size(), 1U);
    first_ = own[0];
    ranks_ = agent_->children();
    for (const pid_t rank : testing::children_of(first_)) ranks_.push_back(rank);
    ASSERT_EQ(ranks_.size(), 4U);
  }
  void expect_undisturbed() {
    for (const pid_t rank : ranks_) EXPECT_FALSE(has_ended(rank));
    train_->send(SIGTERM);
    EXPECT_EQ(train_->wait().code(), 143) << train_->out();
    EXPECT_EQ(agent_->wait().code(), 143) << agent_->out();
    for (int r = 0; r < 4; ++r) EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1);
    for (const char* never : {"was lost", "event died", "generation 1"})
      EXPECT_EQ(train_->count(never), 0) << train_->out();
  }
  void stand_still(const std::vector<pid_t>& processes) {
    for (const pid_t pid : processes) ::kill(pid, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(8));
    for (const pid_t pid : processes) ::kill(pid, SIGCONT);
  }

  std::unique_ptr<testing::Program> agent_;
  pid_t first_ = -1;          // the first node's agent
  std::vector<pid_t> ranks_;  // of both nodes
};

TEST_F(NodeSilence, RanksOfAnAgentThatStandsStillEndBeforeTheNodeIsLost) {
  ASSERT_NO_FATAL_FAILURE(start_all());
  const std::vector<pid_t> ranks = agent_->children();
  const auto spare = join(silence_);
  ASSERT_TRUE(train_->says("has joined as a spare"));
  agent_->send(SIGSTOP);
  ASSERT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->out();
  for (const pid_t rank : ranks) EXPECT_TRUE(has_ended(rank)) << state_of(rank);
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  agent_->send(SIGCONT);
  EXPECT_TRUE(train_->says("has joined as a spare", 2)) << agent_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(agent_->wait().code(), 143);
}

TEST_F(NodeSilence, TheFirstNodesAgentThatStandsStillIsReplaced) {
  ASSERT_NO_FATAL_FAILURE(start_all());
  ::kill(first_, SIGSTOP);
  ASSERT_TRUE(train_->says("event node_lost 0 node 0, ")) << train_->out();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  for (const pid_t rank : ranks_) EXPECT_TRUE(has_ended(rank)) << state_of(rank);
  EXPECT_TRUE(has_ended(first_));
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
}

// Agents cannot tell it from a cut network, so their ranks wait.
TEST_F(NodeSilence, ASupervisorThatStandsStillLosesNobody) {
  ASSERT_NO_FATAL_FAILURE(start_all());
  train_->send(SIGSTOP);
  ASSERT_TRUE(agent_->says("this node's ranks wait until it answers")) << agent_->out();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  for (const pid_t rank : ranks_) EXPECT_EQ(state_of(rank), 'T');
  train_->send(SIGCONT);
  ASSERT_TRUE(agent_->says("this node's ranks continue")) << agent_->out();
  ASSERT_TRUE(train_->says("this node's ranks continue")) << "the first node's";
  expect_undisturbed();
}

TEST_F(NodeSilence, AMachineThatStandsStillLosesNobody) {
  ASSERT_NO_FATAL_FAILURE(start_all());
  std::vector<pid_t> all = {train_->pid(), first_, agent_->pid()};
  all.insert(all.end(), ranks_.begin(), ranks_.end());
  stand_still(all);
  ASSERT_TRUE(agent_->says("this node's ranks continue")) << agent_->out();
  expect_undisturbed();
}

}  // namespace
}  // namespace weft
