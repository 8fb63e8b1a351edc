// tests/launch/node_job_test.cpp: starts, ends, signals and losses of a job on several nodes.
#include "tests/launch/node_job.h"

#include <sys/ptrace.h>

#include <fstream>

namespace weft::testing {
namespace {

std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream words(fmt::format("/proc/{0}/task/{0}/children", parent));
  std::vector<pid_t> children;
  for (pid_t child = 0; words >> child;) children.push_back(child);
  return children;
}

TEST_F(NodeJob, RanksOfTwoNodesMeetAndTheirOutputIsForwarded) {
  train({"report"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 0) << train_->text();
  EXPECT_EQ(agent->wait(), 0) << agent->text();
  const std::string text = train_->text();
  for (const char* line :
       {"rank 0 of 4 sum 4", "[rank 1] rank 1 of 4 sum 4", "[rank 2] rank 2 of 4 sum 4",
        "[rank 3] rank 3 of 4 sum 4", "[rank 3] whole line\n", "[rank 3] no end of rank 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST_F(NodeJob, ADeadRankRestartsAllUntilTheBudgetIsSpent) {
  train({"crash", "3"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 75);
  EXPECT_EQ(agent->wait(), 75);
  const std::string text = train_->text();
  EXPECT_NE(text.find("event died 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_NE(text.find("event started -1 generation 1"), std::string::npos) << text;
  EXPECT_NE(text.find("event failed 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_NE(text.find("; launch.max_restarts=1 is used up (before: rank 3 was killed by SIGABRT"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("generation 2"), std::string::npos) << text;
  EXPECT_TRUE(agent->says("error: rank 3 was killed by SIGABRT")) << agent->text();
}

TEST_F(NodeJob, AFailureThatWouldRepeatEndsAll) {
  train({"user_error", "2"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 2);
  EXPECT_EQ(agent->wait(), 2);
  const std::string text = train_->text();
  EXPECT_NE(text.find("event failed 2 rank 2 ended with exit code 2: the run file is wrong"),
            std::string::npos);
  EXPECT_NE(text.find("\nerror: on "), std::string::npos) << text;  // another machine than this one
  EXPECT_NE(text.find("): the run file is wrong\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\nerror: rank 2 ended"), std::string::npos) << text;
  EXPECT_EQ(text.find("generation 1"), std::string::npos) << text;
}

TEST_F(NodeJob, ASignalReachesAllNodes) {
  for (const bool at_agent : {false, true}) {
    train({"train"});
    const auto agent = join(fmt::format("agent{}", at_agent));
    for (const char* line : {"rank 0 trains, 4 in all", "rank 3 trains, 4 in all"})
      ASSERT_TRUE(train_->says(line));
    (at_agent ? *agent : *train_).send(SIGTERM);
    EXPECT_EQ(train_->wait(), 143) << train_->text();
    EXPECT_EQ(agent->wait(), 143) << agent->text();
    for (int r = 0; r < 4; ++r)
      EXPECT_TRUE(train_->says(fmt::format("rank {} saved", r))) << train_->text();
    std::filesystem::remove(folder_ / "train");
  }
}

TEST_F(NodeJob, AnEarlySignalHasNothingToSave) {
  train({"early_stop"});
  const auto agent = join("agent");
  for (int r = 0; r < 4; ++r)
    ASSERT_TRUE(train_->says(fmt::format("rank {} has nothing to save", r)));
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait(), 130);
  EXPECT_EQ(agent->wait(), 130);
}

TEST_F(NodeJob, ASecondSignalEndsAtOnce) {
  train({"ignore_stop", "2"});
  const auto agent = join("agent");
  ASSERT_TRUE(train_->says("rank 0 trains"));
  ASSERT_TRUE(train_->says("hangs"));
  train_->send(SIGINT);
  ASSERT_TRUE(train_->says("finishing the current step, then saving")) << train_->text();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // else it is the first one's echo
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait(), 1);
  EXPECT_EQ(agent->wait(), 1);
  EXPECT_TRUE(train_->says("event cut_off -1 a second signal")) << train_->text();
}

TEST_F(NodeJob, ASpareTakesThePlaceOfAKilledAgent) {
  train({"train"});
  const auto first = join("first");
  ASSERT_TRUE(all_train(4));
  const auto spare = join("spare");
  ASSERT_TRUE(train_->says("has joined as a spare"));
  first->send(SIGKILL);
  EXPECT_EQ(first->wait(), -SIGKILL);
  ASSERT_TRUE(train_->says("event node_lost 2 node 1, "));
  ASSERT_TRUE(spare->says("node 1 of 2: starting ranks 2 to 3")) << spare->text();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(4, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(spare->wait(), 143);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1);
}

// The supervisor learns of both losses at once: the first must not make it talk to the second.
TEST_F(NodeJob, TwoNodesThatAreLostInTheSameMomentAreReplaced) {
  train({"train"}, {{"NODES", "3"}});
  const auto first = join("first"), second = join("second");
  ASSERT_TRUE(all_train(6)) << train_->text();
  const auto third = join("third"), fourth = join("fourth");
  ASSERT_TRUE(third->says("waiting for work") && fourth->says("waiting for work"));
  train_->send(SIGSTOP);
  for (const auto* lost : {&first, &second}) {
    (*lost)->send(SIGKILL);
    EXPECT_EQ((*lost)->wait(), -SIGKILL);
  }
  train_->send(SIGCONT);
  for (const auto* spare : {&third, &fourth})
    ASSERT_TRUE((*spare)->says(" of 3: starting ranks ")) << train_->text();
  EXPECT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->text();
  EXPECT_TRUE(train_->says("event node_lost 4 node 2, ")) << train_->text();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(6, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
}

TEST_F(NodeJob, ASpareThatCannotStartIsReplacedByAnother) {
  train({"train"}, {{"GRACE_MS", "1000"}});  // of ranks that wait for those that cannot start
  const auto first = join("first");
  ASSERT_TRUE(all_train(4));
  const auto unfit = join_unfit("unfit");
  ASSERT_TRUE(train_->says("has joined as a spare", 1)) << train_->text();
  const auto fit = join("fit");
  ASSERT_TRUE(train_->says("has joined as a spare", 2)) << train_->text();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(4, 2)) << train_->text();
  EXPECT_TRUE(unfit->says("this node cannot start its ranks")) << unfit->text();
  EXPECT_EQ(train_->count("(restart "), 1) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  for (const auto* agent : {&unfit, &fit}) EXPECT_EQ((*agent)->wait(), 143) << (*agent)->text();
}

TEST_F(NodeJob, AnAgentThatLosesItsSupervisorEndsItsRanksAndLeaves) {
  train({"train"});
  const auto agent = join("agent");
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = children_of(agent->pid());
  EXPECT_EQ(ranks.size(), 2u);
  train_->send(SIGKILL);
  EXPECT_EQ(agent->wait(), 75) << agent->text();
  EXPECT_TRUE(agent->says("cannot be reached"));
  for (const pid_t rank : ranks)
    EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", rank)));
}

// As a rank in a system call that nothing interrupts: it was killed, and its parent does not see it
// end. (Who traces a process sees that first, and this test never looks.)
TEST_F(NodeJob, ANodeWithARankThatCannotBeKilledIsLost) {
  const auto set_time = [] { ::setenv("UNKILLABLE_MS", "1000", 1); };
  train({"train"}, {{"UNKILLABLE_MS", "1000"}, {"GRACE_MS", "100"}});
  const auto agent = join("agent", "", set_time);
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = children_of(agent->pid());
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, ranks[0], nullptr, nullptr), 0);
  ::kill(ranks[1], SIGKILL);
  EXPECT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->text();
  EXPECT_TRUE(agent->says("was killed and has not ended within 1 s")) << agent->text();
  EXPECT_TRUE(agent->says("; it is left")) << agent->text();
  ASSERT_TRUE(train_->says("event started -1 generation 1")) << train_->text();  // it joins again
  ASSERT_TRUE(all_train(4, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(agent->wait(), 143) << agent->text();
  ::waitpid(ranks[0], nullptr, 0);
}

TEST_F(NodeJob, TheWrongSecretIsRefusedAndAMissingNodeNamed) {
  train({"report"}, {{"JOIN_MS", "3000"}});
  Secret::random().write_new_file(folder_ / "other");
  const auto stranger = join("stranger", folder_ / "other");
  EXPECT_EQ(stranger->wait(), 2);
  EXPECT_TRUE(stranger->says("closed the connection during the handshake")) << stranger->text();
  EXPECT_EQ(train_->wait(), 75);
  EXPECT_TRUE(train_->says("does not know this run's secret"));
  EXPECT_TRUE(train_->says("1 of 2 nodes joined within 3 s")) << train_->text();
}

TEST_F(NodeJob, StorageThatIsNotSharedIsRefused) {
  train({"report"}, {{"MARKER", folder_ / "nowhere"}});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 2);
  EXPECT_EQ(agent->wait(), 2);
  EXPECT_TRUE(train_->says("storage is not shared")) << train_->text();
}

}  // namespace
}  // namespace weft::testing
