// tests/train/remote_run_test.cpp: a mirror and a store that fails, is killed in, or was changed.
#include "train/remote_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "tests/checkpoint/two_tensors.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/fake_store.h"
#include "train/retrying_store.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::error_of;
using testing::FakeObjects;
using testing::FakeStore;
using testing::TemporaryFolder;
using testing::write_two;

constexpr RemoteTimes kQuick{{50ms, 2000ms, 1ms}, {200ms, 10ms}, 20ms};

class RemoteRunTest : public ::testing::Test {
 protected:
  struct Session {
    std::shared_ptr<FakeStore> store;
    std::unique_ptr<RemoteRun> run;
    RemoteRun* operator->() const { return run.get(); }
  };
  Session open(const char* mirror = "mirror") {
    fs::create_directories(folder_ / mirror);
    Session session{std::make_shared<FakeStore>(objects_), nullptr};
    session.run = std::make_unique<RemoteRun>(session.store, folder_ / mirror, kQuick);
    session->pull(true);
    return session;
  }
  void save(int64_t step, const char* mirror = "mirror") {
    write_two(checkpoint_path(folder_ / mirror, step), static_cast<float>(step), step);
  }
  void write(const std::string& name, const std::string& text, const char* mirror = "mirror") {
    std::ofstream(folder_ / mirror / name) << text;
  }
  // A whole session that saves these steps.
  void train(const std::vector<int64_t>& steps, const char* mirror = "mirror", int64_t keep = 9) {
    Session session = open(mirror);
    session->begin(steps.front() - 1, false);
    for (int64_t step : steps) {
      save(step, mirror);
      session->push(keep);
    }
    session->finish(keep);
  }
  std::vector<std::string> complete() const {
    const std::lock_guard lock(objects_->mutex);
    std::vector<std::string> names;
    for (const auto& [name, bytes] : objects_->by_name) {
      if (name.ends_with("/COMMITTED")) names.push_back(name.substr(0, name.rfind('/')));
    }
    return names;
  }
  std::vector<std::string> here(const char* mirror = "mirror") const {
    std::vector<std::string> names;
    for (const fs::path& path : list_checkpoints(folder_ / mirror))
      names.push_back("checkpoints/" + path.filename().string());
    return names;
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(objects_->mutex);
    return objects_->by_name.contains(name);
  }

  TemporaryFolder folder_;
  std::shared_ptr<FakeObjects> objects_ = std::make_shared<FakeObjects>();
};

using Names = std::vector<std::string>;
constexpr const char* k1 = "checkpoints/step-00000001";
constexpr const char* k2 = "checkpoints/step-00000002";
constexpr const char* k3 = "checkpoints/step-00000003";

TEST_F(RemoteRunTest, ACheckpointIsCompleteInTheStoreOnlyAtItsEnd) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->before = [&](const std::string& call) {
    if (!call.starts_with(std::string("put ") + k1)) return;
    EXPECT_EQ(complete(), Names{}) << call;
  };
  session->push(9);
  EXPECT_EQ(complete(), Names{k1});
}

TEST_F(RemoteRunTest, AnEmptyMirrorGetsTheNewestCheckpointAndTheRecords) {
  train({1, 2, 3});
  {
    Session session = open();
    session->begin(3, false);
    write("events.jsonl", "{}\n");
    write("metrics.jsonl", "{}\n{}\n");
    session->finish(9);
  }
  Session other = open("other");
  EXPECT_EQ(here("other"), Names{k3});
  EXPECT_EQ(read_file(folder_ / "other/metrics.jsonl"), "{}\n{}\n");
  EXPECT_EQ(find_sound_checkpoint(folder_ / "other").state.at("step").as_int(), 3);
}

TEST_F(RemoteRunTest, OldCheckpointsAreRemovedThereByTheirCommittedFirst) {
  train({1, 2, 3}, "mirror", 2);
  EXPECT_EQ(complete(), (Names{k2, k3}));
  Names removed;
  for (const std::string& call : objects_->calls) {
    if (call.starts_with("remove ")) removed.push_back(call);
  }
  ASSERT_FALSE(removed.empty());
  EXPECT_EQ(removed[0], std::string("remove ") + k1 + "/COMMITTED");
  EXPECT_FALSE(has(std::string(k1) + "/index.json"));
}

TEST_F(RemoteRunTest, AStoreThatIsBackInTimeIsNotNoticed) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->num_failures = 2;
  session->push(9);
  EXPECT_EQ(complete(), Names{k1});
}

TEST_F(RemoteRunTest, WhatCouldNotBePushedIsPushedByTheNextSave) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->num_failures = -1;
  EXPECT_NE(error_of<RunError>([&] { session->push(9); }).find("storage s3://fake/run"),
            std::string::npos);
  const std::string end = error_of<RunError>([&] { session->finish(9); });
  EXPECT_NE(end.find((folder_ / "mirror").string()), std::string::npos) << end;
  session.store->num_failures = 0;
  save(2);
  session->push(9);
  EXPECT_EQ(complete(), (Names{k1, k2}));
}

TEST_F(RemoteRunTest, AMirrorThatIsAheadIsUploadedByTheNextStart) {
  train({1});
  {
    Session session = open();
    session->begin(1, false);
    save(2);
    write("events.jsonl", "{\"event\": \"local\"}\n");
    session.store->num_failures = -1;
    error_of<RunError>([&] { session->finish(9); });
  }
  EXPECT_EQ(complete(), Names{k1});
  Session next = open();
  EXPECT_EQ(complete(), (Names{k1, k2}));
  EXPECT_EQ(objects_->by_name["events.jsonl"], "{\"event\": \"local\"}\n");
  EXPECT_EQ(here(), (Names{k1, k2}));
}

TEST_F(RemoteRunTest, AMirrorThatIsAheadOfARunContinuedElsewhereIsSetAside) {
  train({1});
  {
    Session session = open();
    session->begin(1, false);
    save(3);
    session.store->num_failures = -1;
    error_of<RunError>([&] { session->finish(9); });
  }
  objects_->by_name["lock"] =
      "{\"host\":\"h\",\"pid\":1,\"machine\":\"m\",\"token\":\"x\","
      "\"beat\":0,\"lease_s\":1,\"held\":false}";
  Session next = open();
  EXPECT_EQ(here(), Names{k1});
  EXPECT_EQ(complete(), Names{k1});
  EXPECT_TRUE(fs::exists(folder_ / "mirror.unsent" / k3 / "COMMITTED"));
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

TEST_F(RemoteRunTest, WhatThisMachineNeverUploadedIsKeptWhereOthersWentFurther) {
  train({1});
  {
    Session session = open();
    session->begin(1, false);
    save(2);
    session.store->num_failures = -1;
    error_of<RunError>([&] { session->finish(9); });
  }
  train({3}, "other");
  Session next = open();
  EXPECT_EQ(here(), Names{k3});
  EXPECT_TRUE(fs::exists(folder_ / "mirror.unsent" / k2 / "COMMITTED"));
}

TEST_F(RemoteRunTest, WhatTheStoreNoLongerKeepsIsNotPushedAgain) {
  Session session = open();
  session->begin(0, false);
  for (int64_t step : {1, 2, 3}) {
    save(step);
    session->push(2);  // the mirror, which is pruned by the saver, still has all three
  }
  objects_->calls.clear();
  session->push(2);
  for (const std::string& call : objects_->calls)
    EXPECT_FALSE(call.starts_with("put ") || call.starts_with("remove ")) << call;
  EXPECT_EQ(complete(), (Names{k2, k3}));
}

TEST_F(RemoteRunTest, OnlyTheFilesOfARunArePulled) {
  train({1});
  objects_->by_name["dump.bin"] = "someone else's";
  Session session = open("other");
  EXPECT_FALSE(fs::exists(folder_ / "other/dump.bin"));
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
    session.store->before = [&](const std::string& call) {
      if (call.starts_with("list")) return;
      EXPECT_FALSE(complete().empty()) << call;
    };
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
  session.store->before = [&](const std::string& call) {
    if (call.starts_with("list")) return;
    EXPECT_FALSE(complete().empty()) << call;
  };
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
  session.store->before = [](const std::string& call) {
    if (call == "copy checkpoints/best/index.json") throw StoreAway("storage s3://fake/run: away");
  };
  error_of<RunError>([&] { session->push(9); });
  EXPECT_EQ(complete(), Names{"checkpoints/best.writing"});
  session.store->before = [&](const std::string& call) {
    if (call.starts_with("list")) return;
    EXPECT_FALSE(complete().empty()) << call;
  };
  session->push(9);
  EXPECT_EQ(complete(), Names{"checkpoints/best"});
  EXPECT_FALSE(has("checkpoints/best.writing/index.json"));
}

TEST_F(RemoteRunTest, MetricsArePutWhileTheRunGoesOn) {
  Session session = open();
  session->begin(0, false);
  write("metrics.jsonl", "{}\n");
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(10ms);
    if (has("metrics.jsonl")) return;
  }
  FAIL() << "metrics.jsonl was not put";
}

// Killed at any moment, events.jsonl in the store names nothing that is not there.
TEST_F(RemoteRunTest, EventsArePutAfterWhatTheyName) {
  Session session = open();
  session->begin(0, false);
  save(1);
  write("events.jsonl", "{\"event\": \"checkpoint\"}\n");
  write("metrics.jsonl", "{}\n");
  for (int i = 0; i < 500 && !has("metrics.jsonl"); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(has("metrics.jsonl"));
  EXPECT_FALSE(has("events.jsonl")) << "step 1 is not there yet";
  session.store->before = [&](const std::string& call) {
    if (call != "put events.jsonl") return;
    EXPECT_EQ(complete(), Names{k1});
  };
  session->push(9);
  EXPECT_TRUE(has("events.jsonl"));
  EXPECT_EQ(objects_->by_name["metrics.jsonl"], "{}\n");
}

// A step that a start elsewhere resumes from has its lines there.
TEST_F(RemoteRunTest, MetricsArePutBeforeTheCheckpointOfTheirSteps) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->before = [&](const std::string& call) {
    if (!call.starts_with(std::string("put ") + k1)) return;
    EXPECT_TRUE(has("metrics.jsonl")) << call;
  };
  write("metrics.jsonl", "{}\n");
  session->push(9);
  EXPECT_EQ(complete(), Names{k1});
}

// The two minutes begin with the first failure: a transfer may take longer than that.
TEST(RetryingStore, ALongCallThatFailsIsTriedAgain) {
  const auto fake = std::make_shared<FakeStore>(std::make_shared<FakeObjects>());
  int calls = 0;
  fake->before = [&](const std::string&) {
    if (++calls > 1) return;
    std::this_thread::sleep_for(60ms);
    throw StoreAway("gone");
  };
  RetryingStore(fake, {50ms, 1ms}).put("x", "y");
  EXPECT_EQ(calls, 2);
}

TEST_F(RemoteRunTest, ALostLockStopsPushes) {
  Session session = open();
  session->begin(0, false);
  save(1);
  {
    const std::lock_guard lock(objects_->mutex);
    objects_->by_name["lock"] =
        "{\"host\":\"far\",\"pid\":7,\"machine\":\"m\",\"token\":\"x\","
        "\"beat\":0,\"lease_s\":25,\"held\":true}";
  }
  std::this_thread::sleep_for(300ms);  // several heartbeats
  const std::string error = error_of<RunError>([&] { session->push(9); });
  EXPECT_NE(error.find("process 7 on far"), std::string::npos) << error;
  EXPECT_TRUE(session->has_lost_lock());
  error_of<RunError>([&] { session->check_lock(); });
  const std::string end = error_of<RunError>([&] { session->finish(9); });
  EXPECT_EQ(end.find("what s3://fake/run lacks"), std::string::npos) << end;  // nor will it have it
  EXPECT_EQ(complete(), Names{});
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

}  // namespace
}  // namespace weft
