// tests/train/remote_run_fixture.h: a run in a store in memory, with as many mirrors as a test
// wants.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "tests/checkpoint/two_tensors.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/fake_store.h"
#include "train/remote_run.h"
#include "train/retrying_store.h"

namespace weft::testing {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

inline constexpr RemoteTimes kQuick{{50ms, 2000ms, 1ms}, {200ms, 10ms}, 20ms};

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
  // As a process that takes the place of one that was killed.
  Session reopen() {
    Session session{std::make_shared<FakeStore>(objects_), nullptr};
    session.run =
        std::make_unique<RemoteRun>(RemoteRun::Reopen{}, session.store, folder_ / "mirror", kQuick);
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
  // Another machine's process has put its lock, and changed the run.
  void take_over(bool is_held = true) {
    const std::lock_guard lock(objects_->mutex);
    objects_->by_name["lock"] =
        fmt::format(R"({{"host":"far","pid":7,"machine":"m","token":"x","beat":0,)"
                    R"("lease_s":1,"held":{}}})",
                    is_held);
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(objects_->mutex);
    return objects_->by_name.contains(name);
  }

  TemporaryFolder folder_;
  std::shared_ptr<FakeObjects> objects_ = std::make_shared<FakeObjects>();
};

using Names = std::vector<std::string>;
inline constexpr const char* k1 = "checkpoints/step-00000001";
inline constexpr const char* k2 = "checkpoints/step-00000002";
inline constexpr const char* k3 = "checkpoints/step-00000003";

}  // namespace weft::testing
