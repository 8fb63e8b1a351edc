// tests/train/status_file_test.cpp: what is in .status.json, when, and what readers make of it.
#include "train/status_file.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "tests/io/temporary_folder.h"
#include "train/run_lock.h"
#include "train/run_status.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class StatusFiles : public ::testing::Test {
 protected:
  StatusFiles() {
    std::ofstream(folder_ / "events.jsonl") << "{\"event\": \"started\", \"step\": 0}\n";
    status_.is_opened = true;
    status_.max_restarts = 3;
    status_.num_restarts = 1;
    status_.ranks.resize(2);
    for (RankStatus& rank : status_.ranks) rank = {::getpid(), true, {}};
    status_.ranks[1].sign.phase = Phase::kUpdate;
    status_.ranks[1].sign.step = 7;
  }
  void write(StatusFile& file) const {
    file.write(status_);
    file.flush();
  }
  fs::path path() const { return folder_ / kStatusFile; }
  Json read() const { return parse_json(read_file(path()), "the file"); }
  RunStatus seen() const { return read_run_status(folder_.path()); }

  testing::TemporaryFolder folder_;
  JobStatus status_;
};

TEST_F(StatusFiles, NothingBeforeTheDirectoryIsTheRuns) {
  StatusFile file(folder_.path(), std::nullopt);
  status_.is_opened = false;
  write(file);
  file.end(1, "refused");
  EXPECT_FALSE(fs::exists(path()));
  status_.is_opened = true;
  write(file);
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_FALSE(fs::exists(path().string() + ".writing"));
}

// It waits for nodes: readers know it, and a refused start leaves what was there.
TEST_F(StatusFiles, AnAnnouncedRunIsSeenAndARefusedOneLeavesNothing) {
  status_.is_opened = false;
  status_.is_announced = true;
  status_.state = "starting";
  status_.note = "waiting for nodes: 1 of 2 joined (here)";
  status_.ranks.clear();
  for (const char* before : {"", "{\"state\": \"stopped\", \"pid\": 1, \"count\": 3}"}) {
    fs::remove(path());
    if (before[0] != 0) std::ofstream(path()) << before;
    StatusFile file(folder_.path(), std::nullopt);
    write(file);
    EXPECT_TRUE(seen().is_live);
    EXPECT_EQ(seen().state, "starting");
    EXPECT_EQ(seen().note, status_.note);
    file.end(2, "");
    EXPECT_EQ(fs::exists(path()), before[0] != 0);
    EXPECT_EQ(before[0] != 0 ? read_file(path()) : "", before);
  }
  StatusFile file(folder_.path(), std::nullopt);
  write(file);
  file.end(75, "1 of 2 nodes joined");
  EXPECT_EQ(seen().state, "failed");
  EXPECT_EQ(seen().cause, "1 of 2 nodes joined");
  EXPECT_EQ(seen().note, "");
  fs::remove(folder_ / "events.jsonl");
  EXPECT_TRUE(holds_run(folder_.path()));
  fs::remove(path());
  EXPECT_FALSE(holds_run(folder_.path()));
  const RunLock lock(folder_.path());  // it has not come further yet
  EXPECT_TRUE(holds_run(folder_.path()));
}

// What was written some seconds ago is as old.
TEST_F(StatusFiles, SignsAgeWithTheFile) {
  StatusFile file(folder_.path(), std::nullopt);
  for (RankStatus& rank : status_.ranks) rank.sign.at_ms = monotonic_ms();
  write(file);
  EXPECT_EQ(seen().note, "");
  Json old = read();
  old.set("at_ms", Json(old.at("at_ms").as_int() - 20'000));
  std::ofstream(path()) << old.dump();
  const RunStatus now = seen();
  const Json json = now.to_json();
  for (const Json& rank : json.at("ranks").as_array()) {
    EXPECT_GE(rank.at("age_s").as_number(), 20);
    EXPECT_LT(rank.at("age_s").as_number(), 60);
  }
  EXPECT_GE(json.at("status_age_s").as_number(), 20);
  EXPECT_NE(now.note.find(fmt::format("the run's process {} has not written its "
                                      "status; what follows is 2",
                                      ::getpid())),
            std::string::npos)
      << now.note;
}

// Of ranks that all wait for one: which, and since when.
TEST_F(StatusFiles, NamesTheRankThatTheOthersWaitFor) {
  StatusFile file(folder_.path(), std::nullopt);
  status_.ranks[0].sign.at_ms = monotonic_ms();
  status_.ranks[0].sign.is_waiting = true;
  status_.ranks[1].sign.at_ms = monotonic_ms() - 1'000;
  write(file);
  EXPECT_EQ(seen().note, "");  // not for long
  status_.ranks[1].sign.at_ms = monotonic_ms() - 30'000;
  status_.ranks[1].host = "n2";
  write(file);
  const std::string note = seen().note;
  EXPECT_NE(note.find("the others wait for rank 1 on n2, which has given no sign for 3"),
            std::string::npos)
      << note;
  EXPECT_NE(note.find(" s (update)"), std::string::npos) << note;
  status_.ranks[0].sign.is_waiting = false;  // busy too
  write(file);
  EXPECT_EQ(seen().note, "");
}

// A number that names no process is none.
TEST_F(StatusFiles, ARankThatIsReplacedHasNoProcess) {
  StatusFile file(folder_.path(), std::nullopt);
  status_.ranks[1] = {};
  write(file);
  const Json json = seen().to_json();
  EXPECT_EQ(json.at("ranks").as_array()[0].at("pid").as_int(), ::getpid());
  EXPECT_TRUE(json.at("ranks").as_array()[1].at("pid").is_null());
}

TEST_F(StatusFiles, TellsReadersWhatTheSupervisorKnows) {
  StatusFile file(folder_.path(), 1 << 30);
  status_.generation = 3;
  write(file);
  write(file);
  EXPECT_EQ(read().at("count").as_int(), 2);
  const RunStatus now = seen();
  EXPECT_TRUE(now.is_live);
  EXPECT_EQ(now.state, "running");
  const Json json = now.to_json();
  EXPECT_EQ(json.at("planned_bytes").as_int(), 1 << 30);
  EXPECT_EQ(json.at("restarts_left").as_int(), 2);
  EXPECT_EQ(json.at("generation").as_int(), 3);
  EXPECT_EQ(json.at("ranks").as_array()[1].at("phase").as_string(), "update");
  EXPECT_EQ(json.at("ranks").as_array()[1].at("step").as_int(), 7);
  status_.max_restarts = -1;
  write(file);
  EXPECT_TRUE(seen().to_json().at("restarts_left").is_null());
}

TEST_F(StatusFiles, NoSpareWaitsForARunThatHasEnded) {
  StatusFile file(folder_.path(), std::nullopt);
  status_.layout = "dp=2 on 2 nodes";
  status_.num_spares = 1;
  write(file);
  EXPECT_EQ(seen().to_json().at("layout").at("spares").as_int(), 1);
  file.end(143, "");
  EXPECT_EQ(seen().to_json().at("layout").at("spares").as_int(), 0);
  EXPECT_EQ(seen().to_json().at("layout").at("text").as_string(), "dp=2 on 2 nodes");
  EXPECT_EQ(seen().to_json().at("spares").as_int(), 0);
}

TEST_F(StatusFiles, SparesOfARunThatIsNotElastic) {
  StatusFile file(folder_.path(), std::nullopt);
  status_.num_spares = 2;
  write(file);
  EXPECT_TRUE(seen().to_json().at("layout").is_null());
  EXPECT_EQ(seen().to_json().at("spares").as_int(), 2);
}

TEST_F(StatusFiles, Ends) {
  const struct {
    int code;
    const char* state;
  } cases[] = {{0, "finished"}, {143, "stopped"}, {130, "stopped"}, {1, "failed"}, {75, "failed"}};
  for (const auto& c : cases) {
    StatusFile file(folder_.path(), std::nullopt);
    write(file);
    file.end(c.code, "rank 1 was killed by SIGKILL");
    const RunStatus after = seen();
    EXPECT_EQ(after.state, c.state);
    EXPECT_FALSE(after.is_live);
    EXPECT_EQ(after.cause.empty(), std::string(c.state) != "failed");
  }
}

// A process number that was given to another process since.
TEST_F(StatusFiles, OfAProcessThatIsGone) {
  for (RankStatus& rank : status_.ranks) rank.pid = 1;  // who takes the lock is none of them
  const pid_t pid = ::fork();
  if (pid == 0) {
    StatusFile(folder_.path(), std::nullopt).write(status_);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(seen().state, "failed");
  Json reused = read();
  reused.set("pid", Json(int64_t{::getpid()}));
  reused.set("start_ticks", Json(start_ticks(::getpid()) - 1));
  std::ofstream(path()) << reused.dump();
  EXPECT_EQ(seen().state, "failed");
  const RunLock lock(folder_.path());  // somebody has taken the directory, and says nothing yet
  EXPECT_EQ(seen().state, "starting");
  EXPECT_TRUE(seen().is_live);
  fs::remove(path());  // or never will
  EXPECT_EQ(seen().state, "running");
}

// Another machine's file is alive while it changes.
TEST_F(StatusFiles, OfAnotherMachine) {
  StatusFile(folder_.path(), std::nullopt).write(status_);
  Json far = read();
  far.set("host", Json("far"));
  std::ofstream(path()) << far.dump();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::usleep(500'000);
    far.set("count", Json(int64_t{9}));
    std::ofstream(path()) << far.dump();
    ::_exit(0);
  }
  EXPECT_TRUE(seen().is_live);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(seen().is_live);
}

TEST_F(StatusFiles, ADiskThatCannotBeWrittenEndsNothing) {
  StatusFile file(folder_ / "missing", std::nullopt);
  write(file);
  write(file);
  file.end(0, "");
  EXPECT_FALSE(fs::exists(folder_ / "missing"));
}

TEST_F(StatusFiles, StartTicksNameAProcess) {
  EXPECT_GT(start_ticks(::getpid()), 0);
  EXPECT_EQ(start_ticks(::getpid()), start_ticks(::getpid()));
  EXPECT_EQ(start_ticks(999'999'999), 0);
}

}  // namespace
}  // namespace weft
