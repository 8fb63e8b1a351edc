// tests/train/remote_reopen_test.cpp: the process that uploads dies, or must not be held up.
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "tests/train/remote_run_fixture.h"
#include "train/detachable_job.h"

namespace weft::testing {
namespace {

class RemoteReopenTest : public RemoteRunTest {
 protected:
  Json lock() const {
    const std::lock_guard guard(objects_->mutex);
    return parse_json(objects_->by_name.at("lock"), "the lock");
  }
  // What a process leaves that is killed after these steps: mirror and store, as they are now.
  void train_and_die(const std::vector<int64_t>& steps) {
    Session session = open();
    session->begin(0, false);
    for (const int64_t step : steps) {
      save(step);
      session->push(9);
    }
    std::map<std::string, std::string> objects;
    {
      const std::lock_guard guard(objects_->mutex);
      objects = objects_->by_name;
    }
    objects_ = std::make_shared<FakeObjects>();  // the old session releases its lock elsewhere
    objects_->by_name = std::move(objects);
  }
};

TEST_F(RemoteReopenTest, TheLockStaysHeldWithItsToken) {
  train_and_die({1});
  const Json before = lock();
  {
    Session session = reopen();
    save(2);
    session->push(9);
    EXPECT_EQ(lock().at("token").as_string(), before.at("token").as_string());
    EXPECT_TRUE(lock().at("held").as_bool());
    session->finish(9);
  }
  EXPECT_EQ(complete(), (Names{k1, k2}));
  EXPECT_FALSE(lock().at("held").as_bool());
  Session next = open();  // its mirror is current
  EXPECT_EQ(here(), (Names{k1, k2}));
}

TEST_F(RemoteReopenTest, WhatWasCommittedAndNotPushedIsPushed) {
  train_and_die({1});
  save(2);
  objects_->by_name[std::string(k2) + "/index.json"] = "{";  // cut short
  write("metrics.jsonl", "{}\n");
  Session session = reopen();
  session->push(9);
  EXPECT_EQ(complete(), (Names{k1, k2}));
  EXPECT_TRUE(has("metrics.jsonl"));
}

TEST_F(RemoteReopenTest, WhatWasPrunedHalfIsRemoved) {
  train_and_die({1, 2});
  objects_->by_name.erase(std::string(k1) + "/COMMITTED");
  fs::remove_all(folder_ / "mirror" / k1);
  Session session = reopen();
  session->push(1);
  EXPECT_EQ(complete(), Names{k2});
  for (const auto& [name, bytes] : objects_->by_name) EXPECT_FALSE(name.starts_with(k1)) << name;
}

TEST_F(RemoteReopenTest, AStoreThatIsAwayHoldsUpNothing) {
  train_and_die({1});
  Session session{std::make_shared<FakeStore>(objects_), nullptr};
  session.store->num_failures = -1;
  session.run =
      std::make_unique<RemoteRun>(RemoteRun::Reopen{}, session.store, folder_ / "mirror", kQuick);
  save(2);
  EXPECT_FALSE(session->has_lost_lock());
  error_of<RunError>([&] { session->push(9); });
  session.store->num_failures = 0;
  session->push(9);
  EXPECT_EQ(complete(), (Names{k1, k2}));
}

TEST_F(RemoteReopenTest, ARunThatAnotherHasTakenOverMeanwhileIsLost) {
  train_and_die({1});
  take_over();
  Session session = reopen();
  save(2);
  error_of<RunError>([&] { session->push(9); });
  EXPECT_TRUE(session->has_lost_lock());
  EXPECT_EQ(complete(), Names{k1});
}

TEST_F(RemoteReopenTest, AMirrorWithoutATokenIsRefused) {
  train_and_die({1});
  write(kMirrorState, "{");
  const std::string error = error_of<RunError>([&] { reopen(); });
  EXPECT_NE(error.find(kMirrorState), std::string::npos) << error;
}

// A rank that must park leaves its upload behind, and a later push has all of it.
TEST_F(RemoteReopenTest, APushThatIsLeftGoesOn) {
  Session session = open();
  session->begin(0, false);
  std::atomic<bool> is_held = true, has_begun = false;
  session.store->set_before([&](const std::string& call) {
    if (!call.starts_with(std::string("put ") + k1)) return;
    has_begun = true;
    is_held.wait(true);
  });
  save(1);
  session->push_until(9, [&] { return has_begun.load(); });
  EXPECT_EQ(complete(), Names{});
  session->wait_for_push([] { return true; });  // returns, as long as it goes on
  is_held = false;
  is_held.notify_all();
  session->wait_for_push([] { return false; });
  EXPECT_EQ(complete(), Names{k1});
  save(2);
  session->push(9);
  EXPECT_EQ(complete(), (Names{k1, k2}));
}

TEST(DetachableJob, ThrowsWhatItsJobThrowsUnlessItWasLeft) {
  DetachableJob job;
  const auto stay = [] { return false; };
  EXPECT_TRUE(job.run([] {}, stay));
  error_of<RunError>([&] { job.run([] { throw RunError("bad"); }, stay); });
  EXPECT_TRUE(job.run([] {}, stay));
  std::atomic<bool> may_end = false;
  EXPECT_FALSE(job.run(
      [&] {
        may_end.wait(false);
        throw RunError("nobody waits");
      },
      [] { return true; }));
  may_end = true;
  may_end.notify_all();
  bool is_done = false;
  EXPECT_TRUE(job.run([&] { is_done = true; }, stay));
  EXPECT_TRUE(is_done);
}

}  // namespace
}  // namespace weft::testing
