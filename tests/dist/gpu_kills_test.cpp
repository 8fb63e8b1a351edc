// tests/dist/gpu_kills_test.cpp: processes that share a fake GPU on one machine, killed by kill -9
// at random times: the run ends as if none had been.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "checkpoint/compare.h"
#include "checkpoint/logical.h"
#include "tests/dist/gpu_trainer.h"
#include "tests/launch/spawn.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Json> events_of(const GpuTrainer& trainer, const std::string& name) {
  std::vector<Json> found;
  std::istringstream lines(text_of(trainer.dir() / "events.jsonl"));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    Json event = parse_json(line, "events.jsonl");
    if (event.at("event").as_string() == name) found.push_back(std::move(event));
  }
  return found;
}

// Every process that has this file on its command line.
std::vector<pid_t> processes_of(const std::filesystem::path& run_file) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && text_of(entry.path() / "cmdline").find(run_file) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

// The supervisor and its ranks, as processes of this machine.
class GpuJob {
 public:
  GpuJob(const GpuTrainer& trainer, const Sets& sets) : trainer_(trainer) {
    Sets words = {WEFT_GPU_RANK_PROGRAM, run_file().string()};
    words.insert(words.end(), sets.begin(), sets.end());
    pid_ = spawn(words, errors(), errors());
  }
  ~GpuJob() {
    if (pid_ >= 0) end();
  }
  GpuJob(const GpuJob&) = delete;
  GpuJob& operator=(const GpuJob&) = delete;

  std::filesystem::path run_file() const {
    return trainer_.dir().parent_path().parent_path() / "run.yaml";
  }
  std::string errors() const { return run_file().parent_path() / "errors"; }
  std::set<pid_t> ranks() const {
    std::istringstream words(text_of(fmt::format("/proc/{0}/task/{0}/children", pid_)));
    std::set<pid_t> found;
    for (pid_t child = 0; words >> child;) found.insert(child);
    return found;
  }
  bool is_running() {
    if (pid_ >= 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ >= 0;
  }
  // False: the run has ended, or not within a minute.
  template <class Holds>
  bool wait_until(const Holds& holds) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      if (!is_running() || Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // The exit code; -N: signal N.
  int wait() {
    EXPECT_FALSE(wait_until([] { return false; }));
    if (is_running()) {
      ADD_FAILURE() << "the run did not end";
      end();
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  void end() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
    pid_ = -1;
  }

  const GpuTrainer& trainer_;
  pid_t pid_ = -1;
  int status_ = 0;
};

struct KillsCase {
  const char* name;
  Sets sets;
};

class GpuKills : public ::testing::TestWithParam<KillsCase> {
 protected:
  static bool is_full() { return std::getenv("FULL") != nullptr; }
  static int num_kills() { return is_full() ? 25 : 3; }
  static double most_seconds() {
    return is_full() ? 2 : 20;
  }  // 2 is the promise, on a quiet machine
  // Enough for the kills and some calm steps after the last.
  static int64_t num_steps() { return 20 * num_kills() + 10; }

  Sets sets() const {
    Sets all = GetParam().sets;
    all.insert(all.end(), {"parallel.dp=2", "data.seq_length=8", "train.global_batch=4",
                           "train.micro_batch=2", "checkpoint.every=10", "launch.hang_timeout_s=20",
                           fmt::format("train.steps={}", num_steps())});
    return all;
  }
  size_t steps_done() const { return hit_.metrics("loss").size(); }
  void kill_one(GpuJob* job, size_t number);
  void expect_calm_run() const;

  const GpuTrainer calm_, hit_;
  std::mt19937 dice_{static_cast<unsigned>(std::hash<std::string>{}(GetParam().name))};
};

// One rank, somewhere in a step; then until all train again.
void GpuKills::kill_one(GpuJob* job, size_t number) {
  const size_t steps = steps_done() + 1 + dice_() % 6;
  ASSERT_TRUE(job->wait_until([&] { return steps_done() >= steps; })) << text_of(job->errors());
  std::this_thread::sleep_for(std::chrono::microseconds(dice_() % 30'000));
  const std::set<pid_t> before = job->ranks();
  ASSERT_EQ(before.size(), 2u);
  const pid_t victim = *std::next(before.begin(), static_cast<int>(dice_() % before.size()));
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  ASSERT_TRUE(job->wait_until([&] { return events_of(hit_, "recovered").size() == number; }))
      << text_of(job->errors());
  const std::set<pid_t> after = job->ranks();
  EXPECT_EQ(after.size(), before.size());
  for (const pid_t rank : before) EXPECT_EQ(after.contains(rank), rank != victim);
}

void GpuKills::expect_calm_run() const {
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "target_tokens"})
    EXPECT_EQ(hit_.metrics(key), calm_.metrics(key)) << key;
  EXPECT_EQ(std::ssize(hit_.metrics("loss")), num_steps());
  for (const char* part : {"", "final"}) {
    const Comparison c = compare_models(open_logical((calm_.dir() / part).string()),
                                        open_logical((hit_.dir() / part).string()));
    EXPECT_TRUE(c.differences.empty()) << part;
  }
}

TEST_P(GpuKills, KilledProcessesChangeNothing) {
  {
    GpuJob job(calm_, sets());
    ASSERT_EQ(job.wait(), 0) << text_of(job.errors());
  }
  GpuJob job(hit_, sets());
  for (int i = 0; i < num_kills(); ++i)
    ASSERT_NO_FATAL_FAILURE(kill_one(&job, static_cast<size_t>(i) + 1));
  ASSERT_EQ(job.wait(), 0) << text_of(job.errors());
  const std::vector<Json> recovered = events_of(hit_, "recovered");
  EXPECT_EQ(std::ssize(recovered), num_kills());
  for (const Json& event : recovered) {
    EXPECT_LT(event.at("seconds").as_number(), most_seconds()) << event.dump();
    EXPECT_LE(event.at("lost_steps").as_int(), event.at("snapshot_every").as_int()) << event.dump();
  }
  EXPECT_EQ(std::ssize(events_of(hit_, "rank_died")), num_kills());
  EXPECT_EQ(events_of(hit_, "started").size(), 1u) << "storage was read";
  expect_calm_run();
  // Their shared memory has no name: it goes with the last of them.
  EXPECT_TRUE(processes_of(job.run_file()).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GpuKills,
    ::testing::Values(KillsCase{"Fast", {"parallel.shard=zero3"}},
                      KillsCase{"Exact", {"parallel.shard=zero3", "parallel.mode=exact"}}),
    [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace weft::testing
