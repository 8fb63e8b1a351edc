// tests/train/remote_names_test.cpp: what is renamed, replaced or removed in the mirror or the
// store.
#include "tests/train/remote_run_fixture.h"

namespace weft::testing {
namespace {

TEST_F(RemoteRunTest, AStoreThatHasLostTheRunDoesNotStartItAgain) {
  train({1, 2});
  objects_->by_name.clear();
  const std::string error = error_of<UserError>([&] { open(); });
  EXPECT_NE(error.find("step-00000002"), std::string::npos) << error;
  EXPECT_EQ(here(), (Names{k1, k2}));  // nothing here was touched
  Session session = open("other");     // who has never seen it starts it
  EXPECT_EQ(here("other"), Names{});
}

TEST_F(RemoteRunTest, WhatWasRemovedInTheStoreIsRemovedHere) {
  train({1, 2});
  std::erase_if(objects_->by_name, [](const auto& o) { return o.first.starts_with(k2); });
  Session next = open();
  EXPECT_EQ(here(), Names{k1});
}

TEST_F(RemoteRunTest, ACutPushIsIgnoredAndRemovedWhenTheRunBegins) {
  train({1});
  objects_->by_name[std::string(k2) + "/index.json"] = "{";
  Session session = open("other");
  EXPECT_EQ(here("other"), Names{k1});
  EXPECT_TRUE(has(std::string(k2) + "/index.json"));
  session->begin(1, false);
  EXPECT_FALSE(has(std::string(k2) + "/index.json"));
}

TEST_F(RemoteRunTest, OneDamagedHereIsPulledAgainOneDamagedThereIsPassedOver) {
  train({1, 2});
  const std::string file = "/rank-00000.safetensors";
  testing::flip_byte(folder_ / "mirror" / (k2 + file), -1);
  { Session session = open(); }
  CheckpointReader(folder_ / "mirror" / k2).verify();
  objects_->by_name[k2 + file].back() ^= 1;
  Session session = open("other");
  EXPECT_EQ(here("other"), (Names{k1, k2}));
  const DamagedFolder found{folder_ / "other" / k2, "by a rank that has read it"};
  EXPECT_EQ(find_sound_checkpoint(folder_ / "other", {found}).sound, folder_ / "other" / k1);
  // As prepare_run_dir does.
  set_aside_damaged(folder_ / "other" / k2);
  session->begin(1, false);
  EXPECT_EQ(complete(), (Names{k1, k2 + std::string(".damaged")}));
}

// Step 2 was damaged once and trained again: the sound one is not what an old start renamed.
TEST_F(RemoteRunTest, ASoundStepStaysWhereADamagedOneOfItsNameWasSetAside) {
  train({1, 2, 3});
  objects_->by_name[k2 + std::string(".damaged/COMMITTED")] = "x";
  Session session = open("other");
  EXPECT_EQ(here("other"), Names{k3});
  EXPECT_EQ(list_set_aside(folder_ / "other"), Names{"step-00000002.damaged"});
  session->begin(3, false);
  EXPECT_EQ(complete(), (Names{k1, k2 + std::string(".damaged"), k2, k3}));
}

// --resume RUN/checkpoints/best of step 2 moves step-2 away; it is not an older one.
TEST_F(RemoteRunTest, AStepThatThisStartMovedIsMovedThere) {
  train({1, 2});
  Session session = open();
  abandon_checkpoints_after(folder_ / "mirror", 2, folder_ / "mirror");
  session->begin(2, false);
  EXPECT_EQ(complete(), (Names{"checkpoints/abandoned/step-00000002", k1}));
  save(2);
  session->push(9);
  EXPECT_EQ(complete(), (Names{"checkpoints/abandoned/step-00000002", k1, k2}));
}

TEST_F(RemoteRunTest, GoingBackMovesLaterOnesToAbandoned) {
  train({1, 2, 3});
  Session session = open("other");
  ASSERT_TRUE(session->pull_folder(k1));
  abandon_checkpoints_after(folder_ / "other", 1, folder_ / "other" / k1);
  session->begin(1, false);
  EXPECT_EQ(complete(), (Names{"checkpoints/abandoned/step-00000002",
                               "checkpoints/abandoned/step-00000003", k1}));
}

TEST_F(RemoteRunTest, OverwriteDeletesARunAndNothingElse) {
  train({1, 2});
  objects_->by_name["notes.txt"] = "mine";
  Session session{std::make_shared<FakeStore>(objects_), nullptr};
  fs::create_directories(folder_ / "other");
  session.run = std::make_unique<RemoteRun>(session.store, folder_ / "other", kQuick);
  session->pull(false);
  EXPECT_EQ(here("other"), Names{});
  session->begin(0, true);
  EXPECT_EQ(complete(), Names{});
  EXPECT_TRUE(has("notes.txt"));
}

// best/ is replaced while the old one can still be read.
TEST_F(RemoteRunTest, ABestThatIsReplacedIsAlwaysThereAsAWhole) {
  const fs::path best = folder_ / "mirror/checkpoints/best";
  {
    Session session = open();
    session->begin(0, false);
    write_two(best, 1, 1);
    session->push(9);
    EXPECT_EQ(complete(), Names{"checkpoints/best"});
    fs::remove_all(best);
    write_two(best, 2, 2);
    session.store->set_before([&](const std::string& call) {
      if (call.starts_with("list")) return;
      EXPECT_FALSE(complete().empty()) << call;
    });
    session->push(9);
    EXPECT_EQ(complete(), Names{"checkpoints/best"});
  }
  // Killed between: only best.writing is whole.
  std::map<std::string, std::string> moved;
  for (auto& [name, bytes] : objects_->by_name) {
    const std::string old = "checkpoints/best/";
    moved[name.starts_with(old) ? "checkpoints/best.writing/" + name.substr(old.size()) : name] =
        bytes;
  }
  objects_->by_name = moved;
  Session session = open("other");
  EXPECT_EQ(find_sound_best(folder_ / "other")->step, 2);
  session.store->set_before([&](const std::string& call) {
    if (call.starts_with("list")) return;
    EXPECT_FALSE(complete().empty()) << call;
  });
  session->begin(2, false);
  EXPECT_EQ(complete(), Names{"checkpoints/best"});
  session->finish(9);
  EXPECT_EQ(complete(), Names{"checkpoints/best"});
}

// The copy to best/ fails; the next push must not begin by breaking the only whole one.
TEST_F(RemoteRunTest, AReplacementThatFailedHalfwayIsFinishedByTheNextPush) {
  const fs::path best = folder_ / "mirror/checkpoints/best";
  Session session = open();
  session->begin(0, false);
  write_two(best, 1, 1);
  session->push(9);
  fs::remove_all(best);
  write_two(best, 2, 2);
  session.store->set_before([](const std::string& call) {
    if (call == "copy checkpoints/best/index.json") throw StoreAway("storage s3://fake/run: away");
  });
  error_of<RunError>([&] { session->push(9); });
  EXPECT_EQ(complete(), Names{"checkpoints/best.writing"});
  session.store->set_before([&](const std::string& call) {
    if (call.starts_with("list")) return;
    EXPECT_FALSE(complete().empty()) << call;
  });
  session->push(9);
  EXPECT_EQ(complete(), Names{"checkpoints/best"});
  EXPECT_FALSE(has("checkpoints/best.writing/index.json"));
}

TEST_F(RemoteRunTest, NamesThatLeaveTheMirrorAreIgnored) {
  train({1});
  objects_->by_name["../outside"] = "x";
  objects_->by_name["checkpoints/../../outside"] = "x";
  objects_->by_name["checkpoints/step-00000009/../../../COMMITTED"] = "x";
  Session session = open("deep/other");
  EXPECT_EQ(here("deep/other"), Names{k1});
  EXPECT_FALSE(fs::exists(folder_ / "deep/outside"));
  EXPECT_FALSE(fs::exists(folder_ / "outside"));
}

TEST_F(RemoteRunTest, OnlyTheFilesOfARunArePulled) {
  train({1});
  objects_->by_name["dump.bin"] = "someone else's";
  Session session = open("other");
  EXPECT_FALSE(fs::exists(folder_ / "other/dump.bin"));
}

}  // namespace
}  // namespace weft::testing
