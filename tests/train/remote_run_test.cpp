// tests/train/remote_run_test.cpp: a mirror and a store that fails, is killed in, or was changed.
#include "io/safetensors.h"
#include "tests/train/remote_run_fixture.h"

namespace weft::testing {
namespace {

TEST_F(RemoteRunTest, ACheckpointIsCompleteInTheStoreOnlyAtItsEnd) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->set_before([&](const std::string& call) {
    if (!call.starts_with(std::string("put ") + k1)) return;
    EXPECT_EQ(complete(), Names{}) << call;
  });
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

// The store's own checkpoint stays until a sound one has replaced it.
TEST_F(RemoteRunTest, ADamagedCheckpointIsNotUploadedAndReplacesNothing) {
  train({1}, "mirror", 1);
  {
    Session session = open();
    session->begin(1, false);
    save(2);
    write("events.jsonl", "{\"event\": \"local\"}\n");
    session.store->num_failures = -1;
    error_of<RunError>([&] { session->finish(1); });
  }
  flip_byte(folder_ / "mirror" / k2 / "rank-00000.safetensors", -3);
  Session next{std::make_shared<FakeStore>(objects_), nullptr};
  next.run = std::make_unique<RemoteRun>(next.store, folder_ / "mirror", kQuick);
  ::testing::internal::CaptureStderr();
  next->pull(true, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(std::string(k2) + " is damaged and was not uploaded"), std::string::npos);
  EXPECT_EQ(said.find("of a start whose uploads failed"), std::string::npos) << said;
  EXPECT_EQ(complete(), Names{k1});
  EXPECT_EQ(here(), (Names{k1, k2}));
  EXPECT_EQ(find_sound_checkpoint(folder_ / "mirror", {}, CheckDepth::kEveryByte).sound,
            folder_ / "mirror" / k1);
  next->begin(1, false);
  EXPECT_EQ(objects_->by_name["events.jsonl"], "{\"event\": \"local\"}\n");
  save(3);
  next->finish(1);
  EXPECT_EQ(complete(), Names{k3});
}

TEST_F(RemoteRunTest, ADamagedBestOrFinalReplacesNothing) {
  train({1});
  Session session = open();
  session->begin(1, false);
  const fs::path best = folder_ / "mirror/checkpoints/best", model = folder_ / "mirror/final";
  const auto write_model = [&](float value) {
    fs::create_directories(model);
    write("final/config.json", "{}");
    write_safetensors(model / "model.safetensors", {{"a", Dtype::kF32, {1}, &value}}, {});
  };
  write_two(best, 1);
  write_model(1);
  session->push(9);
  const auto before = objects_->by_name;
  write_two(best, 2, 2);
  flip_byte(best / "rank-00000.safetensors", -3);
  write_model(2);
  fs::resize_file(model / "model.safetensors", fs::file_size(model / "model.safetensors") - 1);
  session->push(9);
  for (const char* name : {"checkpoints/best/state.json", "final/model.safetensors"})
    EXPECT_EQ(objects_->by_name[name], before.at(name)) << name;
  write_two(best, 3, 3);
  session->push(9);
  EXPECT_NE(objects_->by_name["checkpoints/best/state.json"],
            before.at("checkpoints/best/state.json"));
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
  take_over(false);
  Session next = open();
  EXPECT_EQ(here(), Names{k1});
  EXPECT_EQ(complete(), Names{k1});
  EXPECT_TRUE(fs::exists(folder_ / "mirror.unsent" / k3 / "COMMITTED"));
}

TEST_F(RemoteRunTest, ABestOrFinalThatWasNeverUploadedIsSetAsideToo) {
  for (const std::string name : {"checkpoints/best", "final"}) {
    const std::string mirror = name == "final" ? "mirror_of_final" : "mirror_of_best";
    train({1}, mirror.c_str());
    {
      Session session = open(mirror.c_str());
      session->begin(1, false);
      if (name == "final") {
        fs::create_directories(folder_ / mirror / name);
        write("final/config.json", "{}", mirror.c_str());
      } else {
        write_two(folder_ / mirror / name, 2, 2);
      }
      session.store->num_failures = -1;
      error_of<RunError>([&] { session->finish(9); });
    }
    take_over(false);
    Session next = open(mirror.c_str());
    EXPECT_FALSE(fs::exists(folder_ / mirror / name));
    EXPECT_TRUE(fs::exists(folder_ / (mirror + ".unsent") / name)) << name;
  }
}

// A start elsewhere that was killed before it changed anything.
TEST_F(RemoteRunTest, AMirrorStaysCurrentWhereAnotherStartChangedNothing) {
  train({1});
  {
    Session session = open();
    session->begin(1, false);
    save(2);
    session.store->num_failures = -1;
    error_of<RunError>([&] { session->finish(9); });
  }
  std::string killed;
  {
    const Session other = open("other");
    const std::lock_guard lock(objects_->mutex);
    killed = objects_->by_name["lock"];
  }
  objects_->by_name["lock"] = killed;
  Session next = open();
  EXPECT_EQ(here(), (Names{k1, k2}));
  EXPECT_EQ(complete(), (Names{k1, k2}));
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
  std::atomic<int> num_changes = 0;
  session.store->set_before([&](const std::string& call) {
    const bool is_read = call.starts_with("list") || call.starts_with("find");
    num_changes += !is_read && call != "put lock";
  });
  session->push(2);
  EXPECT_EQ(num_changes, 0);
  EXPECT_EQ(complete(), (Names{k2, k3}));
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
  session.store->set_before([&](const std::string& call) {
    if (call != "put events.jsonl") return;
    EXPECT_EQ(complete(), Names{k1});
  });
  session->push(9);
  EXPECT_TRUE(has("events.jsonl"));
  EXPECT_EQ(objects_->by_name["metrics.jsonl"], "{}\n");
}

// A step that a start elsewhere resumes from has its lines there.
TEST_F(RemoteRunTest, MetricsArePutBeforeTheCheckpointOfTheirSteps) {
  Session session = open();
  session->begin(0, false);
  save(1);
  session.store->set_before([&](const std::string& call) {
    if (!call.starts_with(std::string("put ") + k1)) return;
    EXPECT_TRUE(has("metrics.jsonl")) << call;
  });
  write("metrics.jsonl", "{}\n");
  session->push(9);
  EXPECT_EQ(complete(), Names{k1});
}

// The two minutes begin with the first failure: a transfer may take longer than that.
TEST(RetryingStore, ALongCallThatFailsIsTriedAgain) {
  const auto fake = std::make_shared<FakeStore>(std::make_shared<FakeObjects>());
  int calls = 0;
  fake->set_before([&](const std::string&) {
    if (++calls > 1) return;
    std::this_thread::sleep_for(60ms);
    throw StoreAway("gone");
  });
  RetryingStore(fake, {50ms, 1ms}).put("x", "y");
  EXPECT_EQ(calls, 2);
}

// Keys that have expired, or a store that is away, are no reason to stop saving here.
TEST_F(RemoteRunTest, OnlyALostLockIsAReasonToStop) {
  Session session = open();
  session->begin(0, false);
  session.store->num_failures = -1;
  std::this_thread::sleep_for(1200ms);  // the lease is overdue
  session->check_lock();
  session.store->num_failures = 0;
  session.store->set_before([](const std::string&) { throw UserError("keys have expired"); });
  std::this_thread::sleep_for(1200ms);
  session->check_lock();
  EXPECT_FALSE(session->has_lost_lock());
}

// A request that failed is made again after another process has taken the run over.
TEST_F(RemoteRunTest, ARetryAsksForTheLockFirst) {
  Session session = open();
  session->begin(0, false);
  for (int64_t step : {1, 2}) {
    save(step);
    session->push(9);
  }
  std::atomic<bool> has_failed = false;
  session.store->set_before([&](const std::string& call) {
    if (call != std::string("remove ") + k1 + "/COMMITTED" || has_failed.exchange(true)) return;
    take_over();
    std::this_thread::sleep_for(1200ms);  // as long as makes the lease overdue
    throw StoreAway("storage s3://fake/run: away");
  });
  error_of<RunError>([&] { session->push(1); });
  EXPECT_TRUE(has_failed);
  EXPECT_EQ(complete(), (Names{k1, k2}));
}

TEST_F(RemoteRunTest, ALostLockStopsPushes) {
  Session session = open();
  session->begin(0, false);
  save(1);
  take_over();
  std::this_thread::sleep_for(300ms);  // several heartbeats
  const std::string error = error_of<RunError>([&] { session->push(9); });
  EXPECT_NE(error.find("process 7 on far"), std::string::npos) << error;
  EXPECT_TRUE(session->has_lost_lock());
  error_of<RunError>([&] { session->check_lock(); });
  const std::string end = error_of<RunError>([&] { session->finish(9); });
  EXPECT_EQ(end.find("what s3://fake/run lacks"), std::string::npos) << end;  // nor will it have it
  EXPECT_EQ(complete(), Names{});
}

}  // namespace
}  // namespace weft::testing
