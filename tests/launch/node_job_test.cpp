// tests/launch/node_job_test.cpp: starts, ends, signals and losses of a job on several nodes.
#include "tests/launch/node_job.h"

#include <sys/ptrace.h>

namespace weft::testing {
namespace {

TEST_F(NodeJob, RanksOfTwoNodesMeetAndTheirOutputIsForwarded) {
  train({"report"});
  const auto agent = join();
  EXPECT_EQ(train_->wait().code(), 0) << train_->out();
  EXPECT_EQ(agent->wait().code(), 0) << agent->out();
  const std::string text = train_->out();
  for (const char* line :
       {"rank 0 of 4 sum 4", "[rank 1] rank 1 of 4 sum 4", "[rank 2] rank 2 of 4 sum 4",
        "[rank 3] rank 3 of 4 sum 4", "[rank 3] whole line\n", "[rank 3] no end of rank 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST_F(NodeJob, ADeadRankRestartsAllUntilTheBudgetIsSpent) {
  train({"crash", "3"});
  const auto agent = join();
  EXPECT_EQ(train_->wait().code(), 75);
  EXPECT_EQ(agent->wait().code(), 75);
  const std::string text = train_->out();
  EXPECT_NE(text.find("event died 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_NE(text.find("event started -1 generation 1"), std::string::npos) << text;
  EXPECT_NE(text.find("event failed 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_NE(text.find("; launch.max_restarts=1 is used up (before: rank 3 was killed by SIGABRT"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("generation 2"), std::string::npos) << text;
  EXPECT_TRUE(agent->says("error: rank 3 was killed by SIGABRT")) << agent->out();
}

TEST_F(NodeJob, AFailureThatWouldRepeatEndsAll) {
  train({"user_error", "2"});
  const auto agent = join();
  EXPECT_EQ(train_->wait().code(), 2);
  EXPECT_EQ(agent->wait().code(), 2);
  const std::string text = train_->out();
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
    const auto agent = join();
    for (const char* line : {"rank 0 trains, 4 in all", "rank 3 trains, 4 in all"})
      ASSERT_TRUE(train_->says(line));
    (at_agent ? *agent : *train_).send(SIGTERM);
    EXPECT_EQ(train_->wait().code(), 143) << train_->out();
    EXPECT_EQ(agent->wait().code(), 143) << agent->out();
    for (int r = 0; r < 4; ++r)
      EXPECT_TRUE(train_->says(fmt::format("rank {} saved", r))) << train_->out();
  }
}

TEST_F(NodeJob, AnEarlySignalHasNothingToSave) {
  train({"early_stop"});
  const auto agent = join();
  for (int r = 0; r < 4; ++r)
    ASSERT_TRUE(train_->says(fmt::format("rank {} has nothing to save", r)));
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait().code(), 130);
  EXPECT_EQ(agent->wait().code(), 130);
}

TEST_F(NodeJob, ASecondSignalEndsAtOnce) {
  train({"ignore_stop", "2"});
  const auto agent = join();
  ASSERT_TRUE(train_->says("rank 0 trains"));
  ASSERT_TRUE(train_->says("hangs"));
  train_->send(SIGINT);
  ASSERT_TRUE(train_->says("finishing the current step, then saving")) << train_->out();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // else it is the first one's echo
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait().code(), 1);
  EXPECT_EQ(agent->wait().code(), 1);
  EXPECT_TRUE(train_->says("event cut_off -1 a second signal")) << train_->out();
}

TEST_F(NodeJob, ASpareTakesThePlaceOfAKilledAgent) {
  train({"train"});
  const auto first = join();
  ASSERT_TRUE(all_train(4));
  const auto spare = join();
  ASSERT_TRUE(train_->says("has joined as a spare"));
  first->send(SIGKILL);
  EXPECT_EQ(first->wait().code(), -SIGKILL);
  ASSERT_TRUE(train_->says("event node_lost 2 node 1, "));
  ASSERT_TRUE(spare->says("node 1 of 2: starting ranks 2 to 3")) << spare->out();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(spare->wait().code(), 143);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1);
}

// The supervisor learns of both losses at once: the first must not make it talk to the second.
TEST_F(NodeJob, TwoNodesThatAreLostInTheSameMomentAreReplaced) {
  train({"train"}, {{"NODES", "3"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  const auto third = join(), fourth = join();
  ASSERT_TRUE(third->says("waiting for work") && fourth->says("waiting for work"));
  train_->send(SIGSTOP);
  for (const auto* lost : {&first, &second}) {
    (*lost)->send(SIGKILL);
    EXPECT_EQ((*lost)->wait().code(), -SIGKILL);
  }
  train_->send(SIGCONT);
  for (const auto* spare : {&third, &fourth})
    ASSERT_TRUE((*spare)->says(" of 3: starting ranks ")) << train_->out();
  EXPECT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->out();
  EXPECT_TRUE(train_->says("event node_lost 4 node 2, ")) << train_->out();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(6, 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
}

TEST_F(NodeJob, ASpareThatCannotStartIsReplacedByAnother) {
  train({"train"}, {{"GRACE_MS", "1000"}});  // of ranks that wait for those that cannot start
  const auto first = join();
  ASSERT_TRUE(all_train(4));
  const auto unfit = join_unfit();
  ASSERT_TRUE(train_->says("has joined as a spare", 1)) << train_->out();
  const auto fit = join();
  ASSERT_TRUE(train_->says("has joined as a spare", 2)) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  EXPECT_TRUE(unfit->says("this node cannot start its ranks")) << unfit->out();
  EXPECT_EQ(train_->count("(restart "), 1) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  for (const auto* agent : {&unfit, &fit})
    EXPECT_EQ((*agent)->wait().code(), 143) << (*agent)->out();
}

TEST_F(NodeJob, AnAgentThatLosesItsSupervisorEndsItsRanksAndLeaves) {
  train({"train"});
  const auto agent = join();
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = agent->children();
  EXPECT_EQ(ranks.size(), 2u);
  train_->send(SIGKILL);
  EXPECT_EQ(agent->wait().code(), 75) << agent->out();
  EXPECT_TRUE(agent->says("cannot be reached"));
  for (const pid_t rank : ranks)
    EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", rank)));
}

// As a rank in a system call that nothing interrupts: it was killed, and its parent does not see it
// end. (Who traces a process sees that first, and this test never looks.)
TEST_F(NodeJob, ANodeWithARankThatCannotBeKilledIsLost) {
  train({"train"}, {{"UNKILLABLE_MS", "1000"}, {"GRACE_MS", "100"}});
  const auto agent = join({{"UNKILLABLE_MS", "1000"}});
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = agent->children();
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, ranks[0], nullptr, nullptr), 0);
  ::kill(ranks[1], SIGKILL);
  EXPECT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->out();
  EXPECT_TRUE(agent->says("was killed and has not ended within 1 s")) << agent->out();
  EXPECT_TRUE(agent->says("; it is left")) << agent->out();
  ASSERT_TRUE(train_->says("event started -1 generation 1")) << train_->out();  // it joins again
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(agent->wait().code(), 143) << agent->out();
  ::waitpid(ranks[0], nullptr, 0);
}

TEST_F(NodeJob, TheWrongSecretIsRefusedAndAMissingNodeNamed) {
  train({"report"}, {{"JOIN_MS", "3000"}});
  Secret::random().write_new_file(folder_ / "other");
  const auto stranger = join_with(folder_ / "other");
  EXPECT_EQ(stranger->wait().code(), 2);
  EXPECT_TRUE(stranger->says("closed the connection during the handshake")) << stranger->out();
  EXPECT_EQ(train_->wait().code(), 75);
  EXPECT_TRUE(train_->says("does not know this run's secret"));
  EXPECT_TRUE(train_->says("1 of 2 nodes joined within 3 s")) << train_->out();
}

TEST_F(NodeJob, StorageThatIsNotSharedIsRefused) {
  train({"report"}, {{"MARKER", folder_ / "nowhere"}});
  const auto agent = join();
  EXPECT_EQ(train_->wait().code(), 2);
  EXPECT_EQ(agent->wait().code(), 2);
  EXPECT_TRUE(train_->says("storage is not shared")) << train_->out();
}

}  // namespace
}  // namespace weft::testing
