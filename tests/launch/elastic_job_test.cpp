// tests/launch/elastic_job_test.cpp: a job that goes on with fewer nodes, and with more.
#include "tests/launch/node_job.h"

namespace weft::testing {
namespace {

class ElasticJob : public NodeJob {};

TEST_F(ElasticJob, ContinuesWithFewerNodesAndTheRestWaits) {
  train({"train"}, {{"NODES", "3"}, {"ELASTIC", "31"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  EXPECT_EQ(first->wait().code(), -SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->out();  // two nodes are not admissible
  EXPECT_TRUE(train_->says(" waits as a spare")) << train_->out();
  EXPECT_TRUE(train_->says("dp=2 on 1 node, instead of dp=6 on 3 nodes")) << train_->out();
  EXPECT_TRUE(train_->says("event layout -1 dp=6 on 3 nodes\ndp=2 on 1 node\nnode "))
      << train_->out();
  second->send(SIGKILL);  // which nobody needs
  EXPECT_TRUE(train_->says(" has left")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(train_->count("event started "), 2) << train_->out();
}

TEST_F(ElasticJob, StartsWithTheNodesThatCame) {
  train({"train"}, {{"NODES", "4"}, {"ELASTIC", "421"}, {"JOIN_MS", "4000"}, {"SHORT", "4"}});
  const auto agent = join(), spare = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  EXPECT_TRUE(train_->says("3 of 4 nodes joined within 4 s: dp=4 on 2 nodes")) << train_->out();
  ASSERT_TRUE(train_->says("event layout -1 dp=8 on 4 nodes\ndp=4 on 2 nodes\n")) << train_->out();
  const std::string text = train_->out();  // earlier output comes first
  EXPECT_LT(text.find("the run directory is open"), text.find("event layout -1 ")) << text;
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(agent->wait().code(), 143);
  EXPECT_EQ(spare->wait().code(), 143);
}

TEST_F(ElasticJob, SkipsLayoutsThatDoNotFit) {
  train({"train"}, {{"NODES", "3"}, {"ELASTIC", "321"}, {"SHORT", "2"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->out();
  EXPECT_TRUE(train_->says("dp=4 on 2 nodes does not fit: 2 GiB are missing")) << train_->out();
}

TEST_F(ElasticJob, NamesWhatIsMissingWhereNothingFits) {
  train({"train"}, {{"ELASTIC", "21"}, {"SHORT", "1"}, {"REJOIN_MS", "3000"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  const std::string text = train_->out();
  EXPECT_NE(text.find("1 of 2 nodes joined within 3 s"), std::string::npos) << text;
  EXPECT_NE(text.find("fewer do not fit: 2 GiB are missing"), std::string::npos) << text;
}

TEST_F(ElasticJob, GrowsWithoutCostToItsBudget) {
  train({"train"}, {{"ELASTIC", "21"}, {"JOIN_MS", "1000"}});
  ASSERT_TRUE(all_train(2)) << train_->out();
  const auto first = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(train_->says(fmt::format("rank {} saved", r)));
  EXPECT_TRUE(train_->says("event layout -1 dp=2 on 1 node\ndp=4 on 2 nodes\n")) << train_->out();
  first->send(SIGKILL);  // the only restart of the budget
  ASSERT_TRUE(train_->says("event layout -1 dp=4 on 2 nodes\ndp=2 on 1 node\nnode 1, "))
      << train_->out();
  const auto second = join();
  ASSERT_TRUE(second->says("node 1 of 2: starting ranks 2 to 3")) << train_->out();
  ASSERT_TRUE(train_->says("event started -1 generation 3")) << train_->out();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(second->wait().code(), 143);
}

// The budget is one restart, which a node that is lost later costs.
TEST_F(ElasticJob, LeavesOutANodeThatCannotStartWithoutCostToItsBudget) {
  for (const char* snapshots : {"", "1"}) {
    train({"train"}, {{"ELASTIC", "21"},
                      {"JOIN_MS", "1000"},
                      {"GRACE_MS", "1000"},  // of ranks that wait for those that cannot start
                      {"SNAPSHOTS", snapshots}});
    ASSERT_TRUE(all_train(2)) << train_->out();
    const auto unfit = join_unfit();
    ASSERT_TRUE(all_train(2, 2)) << train_->out();
    EXPECT_TRUE(unfit->says("this node cannot start its ranks: cannot allocate ")) << unfit->out();
    EXPECT_TRUE(train_->says("; it is left out until its agent is started again"));
    EXPECT_EQ(train_->count("(restart "), 0) << train_->out();
    EXPECT_TRUE(train_->says("event node_unfit 2 node 1, ")) << train_->out();
    EXPECT_EQ(train_->count("event node_lost"), 0) << train_->out();
    const auto fit = join();
    ASSERT_TRUE(all_train(4)) << train_->out();
    fit->send(SIGKILL);
    ASSERT_TRUE(all_train(2, 3)) << train_->out();
    EXPECT_EQ(train_->count("(restart 1 of 1)"), 1) << train_->out();
    train_->send(SIGTERM);
    EXPECT_EQ(train_->wait().code(), 143) << train_->out();
    EXPECT_EQ(unfit->wait().code(), 143) << unfit->out();  // the agent had been waiting
    EXPECT_EQ(unfit->count("joined the run at"), 1) << unfit->out();
  }
}

// What fits is what is made: a layout without memory for slots has none, and the next has them.
TEST_F(ElasticJob, ALayoutThatFitsOnlyWithoutSnapshotsHasNoSlots) {
  train({"train"}, {{"ELASTIC", "21"}, {"SNAPSHOTS", "1"}, {"BARE", "1"}});
  const auto first = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  EXPECT_TRUE(train_->says("rank 0 trains, 4 in all, with slots")) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(train_->says("rank 0 trains, 2 in all, without slots")) << train_->out();
  EXPECT_TRUE(train_->says("dp=2 on 1 node: no memory for copies")) << train_->out();
  const auto second = join();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  EXPECT_TRUE(train_->says("rank 0 trains, 4 in all, with slots", 2)) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
}

// Ranks say what they have found in the slots of the layout before.
std::string texts_of(int num_ranks) {
  std::string all;
  for (int r = 0; r < num_ranks; ++r) all += fmt::format("rank {} of {}; ", r, num_ranks);
  return all;
}

// The process has no segments with slots any more.
bool until_freed(pid_t pid) {
  for (int i = 0; i < 10'000; ++i) {
    bool has_any = false;
    std::error_code gone;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), gone)) {
      const std::string to = std::filesystem::read_symlink(entry.path(), gone);
      has_any = has_any || to.find("weft-snapshots") != std::string::npos;
    }
    if (!has_any) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST_F(ElasticJob, ContinuesInASmallerLayoutFromMemory) {
  train({"snapshot"}, {{"NODES", "3"}, {"ELASTIC", "321"}, {"SNAPSHOTS", "1"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(4)) << train_->out();
  for (int r = 0; r < 4; ++r)
    EXPECT_TRUE(train_->says(fmt::format("rank {} has step 7 of {}", r, texts_of(6))))
        << train_->out();
  EXPECT_TRUE(train_->says("event layout -1 dp=6 on 3 nodes\ndp=4 on 2 nodes\nnode "));
  EXPECT_TRUE(train_->says("\nstep 7 in memory")) << train_->out();
  EXPECT_EQ(train_->count("event continued -1 7"), 1) << train_->out();
  EXPECT_EQ(train_->count("(restart 1 of 1)"), 1) << train_->out();
  const std::string text = train_->out();  // before the ranks that may finish
  EXPECT_LT(text.find("event layout"), text.find("event started -1 generation 1")) << text;
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(second->wait().code(), 143) << second->out();
}

TEST_F(ElasticJob, ANodeWithoutAPlaceInTheSmallerLayoutStillHasItsSlots) {
  train({"snapshot"}, {{"NODES", "3"}, {"ELASTIC", "31"}, {"SNAPSHOTS", "1"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->out();
  EXPECT_TRUE(train_->says(" waits as a spare")) << train_->out();
  for (int r = 0; r < 2; ++r)
    EXPECT_TRUE(train_->says(fmt::format("rank {} has step 7 of {}", r, texts_of(6))))
        << train_->out();
  EXPECT_TRUE(until_freed(second->pid())) << second->out();
}

TEST_F(ElasticJob, WhatNoMemoryHasComesFromStorage) {
  train({"snapshot"}, {{"NODES", "3"}, {"ELASTIC", "321"}, {"SNAPSHOTS", "1"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);  // neighbours: one has the other's copies
  second->send(SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->out();
  EXPECT_TRUE(train_->says("event continued -1 storage")) << train_->out();
  EXPECT_TRUE(train_->says("dp=2 on 1 node\nnode ")) << train_->out();
  EXPECT_TRUE(train_->says("\nstorage")) << train_->out();
  EXPECT_EQ(train_->count("has step 7"), 0) << train_->out();
}

TEST_F(ElasticJob, ALayoutWithoutMemoryForSlotsStartsFromStorage) {
  train({"snapshot"}, {{"ELASTIC", "21"}, {"SNAPSHOTS", "1"}, {"BARE", "1"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->out();
  EXPECT_TRUE(
      train_->says("event recovery_failed -1 the snapshots of the layout before cannot be "
                   "used: the next layout has no memory for copies"))
      << train_->out();
  EXPECT_EQ(train_->count("has step 7"), 0) << train_->out();
}

// It would not train with one node, but it saves.
TEST_F(ElasticJob, ASignalWhileANodeIsMissingSavesWhatMemoryHas) {
  train({"snapshot"}, {{"ELASTIC", "21"}, {"FEWEST", "2"}, {"SNAPSHOTS", "1"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  EXPECT_EQ(train_->count("generation 1"), 0) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(train_->count("SIGTERM: saving step 7, which the memory of the other nodes has"), 1)
      << train_->out();
  const std::string text = train_->out();
  EXPECT_LT(text.find("event layout -1 dp=4 on 2 nodes\ndp=2 on 1 node\n"),
            text.find("rank 0 saved"))
      << text;
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(train_->count(fmt::format("rank {} has step 7 of {}", r, texts_of(4))), 1)
        << train_->out();
    EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1) << train_->out();
  }
}

TEST_F(ElasticJob, ASignalWhereTheSmallerLayoutHasNoMemoryForSlotsSaysWhatIsLost) {
  train({"snapshot"}, {{"ELASTIC", "21"}, {"FEWEST", "2"}, {"SNAPSHOTS", "1"}, {"BARE", "1"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_TRUE(
      train_->says("event failed -1 the snapshots of the layout before cannot be used: the "
                   "next layout has no memory for copies; node 1, "))
      << train_->out();
  EXPECT_EQ(train_->count("continuing from"), 0) << train_->out();
  EXPECT_EQ(train_->count("event continued -1 storage"), 0) << train_->out();
}

// What would happen again is no reason to try again; a hint stays the last line.
TEST_F(ElasticJob, AFullDiskWhileMemoryIsSavedIsNoLostRank) {
  train({"snapshot"}, {{"ELASTIC", "21"}, {"FEWEST", "2"}, {"SNAPSHOTS", "1"}, {"FULL_DISK", ""}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 1) << train_->out();
  EXPECT_EQ(train_->count(" ended with exit code 1: the disk is full; node 1, "), 2)
      << train_->out();
  EXPECT_EQ(train_->count("the newest checkpoint are lost\n  hint: make room\n"), 1)
      << train_->out();
  EXPECT_EQ(train_->count("; SIGTERM: no other node has taken its place, so step "), 2)
      << train_->out();
}

// The same where no signal but a wait in vain has ended the run.
TEST_F(ElasticJob, AFullDiskAfterAWaitInVainIsNoLostNode) {
  train({"snapshot"}, {{"ELASTIC", "21"},
                       {"FEWEST", "2"},
                       {"SNAPSHOTS", "1"},
                       {"FULL_DISK", ""},
                       {"REJOIN_MS", "3000"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 1) << train_->out();
  EXPECT_EQ(train_->count(" could not be saved: "), 2) << train_->out();
}

// The layout is being checked when the signal arrives, at an agent that has no ranks.
TEST_F(ElasticJob, ASignalBetweenTwoLayoutsSavesWhatMemoryHas) {
  train({"snapshot"},
        {{"NODES", "3"}, {"ELASTIC", "321"}, {"SNAPSHOTS", "1"}, {"CHECK_MS", "1500"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  ASSERT_TRUE(train_->says("; continuing from step 7")) << train_->out();
  second->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(second->wait().code(), 143) << second->out();
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1) << train_->out();
}

TEST_F(ElasticJob, ASignalWhereFewerNodesDoNotFitSaysWhatIsLost) {
  train({"snapshot"}, {{"ELASTIC", "21"}, {"FEWEST", "2"}, {"SNAPSHOTS", "1"}, {"SHORT", "1"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  ASSERT_TRUE(train_->says("waiting for another node: weft agent")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_TRUE(train_->says("the steps since the newest checkpoint are lost; fewer do not fit: 2 "))
      << train_->out();
}

TEST_F(ElasticJob, WhatMemoryHasIsSavedWhereNobodyJoinsInTime) {
  train({"snapshot"},
        {{"ELASTIC", "21"}, {"FEWEST", "2"}, {"SNAPSHOTS", "1"}, {"REJOIN_MS", "3000"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_EQ(train_->count("no other node has joined within 3 s: saving step 7, which"), 1)
      << train_->out();
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1) << train_->out();
  EXPECT_EQ(train_->count("event failed -1 node 1, "), 1) << train_->out();
  EXPECT_EQ(train_->count("; step 7, which memory had, is saved"), 2) << train_->out();
}

// Of two layouts with fewer nodes one is too small for a run that trains, but not to save.
TEST_F(ElasticJob, AnElasticRunSavesToo) {
  train({"snapshot"}, {{"NODES", "3"},
                       {"ELASTIC", "321"},
                       {"FEWEST", "2"},
                       {"SNAPSHOTS", "1"},
                       {"SHORT", "2"},
                       {"REJOIN_MS", "3000"}});
  const auto first = join(), second = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  first->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_EQ(train_->count("rank 0 saved"), 1) << train_->out();
  EXPECT_EQ(train_->count("; step 7, which memory had, is saved"), 2) << train_->out();
}

TEST_F(ElasticJob, WhereFewerNodesDoNotFitTheEndSaysWhatIsLost) {
  train({"snapshot"}, {{"ELASTIC", "21"},
                       {"FEWEST", "2"},
                       {"SNAPSHOTS", "1"},
                       {"SHORT", "1"},
                       {"REJOIN_MS", "3000"}});
  const auto agent = join();
  ASSERT_TRUE(all_train(4)) << train_->out();
  agent->send(SIGKILL);
  EXPECT_EQ(train_->wait().code(), 75) << train_->out();
  EXPECT_TRUE(train_->says("the steps since the newest checkpoint are lost; fewer do not fit: 2 "))
      << train_->out();
}

TEST_F(ElasticJob, ASignalWhileItGrowsEndsIt) {
  train({"slow_save"}, {{"ELASTIC", "21"}, {"JOIN_MS", "1000"}});
  ASSERT_TRUE(all_train(2)) << train_->out();
  const auto agent = join();
  ASSERT_TRUE(train_->says("saving after this step, then dp=4 on 2 nodes")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(agent->wait().code(), 143);
  EXPECT_EQ(train_->out().find("generation 1"), std::string::npos) << train_->out();
}

}  // namespace
}  // namespace weft::testing
