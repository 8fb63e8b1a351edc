// tests/e2e/signals_test.cpp: stop signals in the middle of a run: steps, evaluation, rows.
//
// Deadlines are ten times the promise of a second.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/stop.h"
#include "tests/e2e/disturbed_run.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Sends it, and returns the end, which must come soon.
Ended stop(Program& program, int signal) {
  const auto start = Clock::now();
  program.send(signal);
  Ended ended = program.wait(60);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10)) << ended.err;
  return ended;
}

TEST(Signals, EachSavesAndSetsItsExitCode) {
  const TinyRun run;
  for (const char* ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
      const std::string name = fmt::format("{}{}", signal_name(signal), ranks[12]);
      Program program(run.words("train", {"name=" + name, "train.steps=100000", ranks}));
      ASSERT_TRUE(program.wait_until([&] { return num_steps(run, name) > 1; }));
      const Ended ended = stop(program, signal);
      EXPECT_EQ(ended.exit_code, 128 + signal) << ended.err;
      const std::string word = signal_name(signal);
      expect_parts(ended.err, {word + ": finishing the current step, then saving\n",
                               fmt::format("{}: saved at step {}", word, num_steps(run, name))});
      EXPECT_TRUE(std::filesystem::exists(
          run.checkpoint(static_cast<int64_t>(num_steps(run, name)), name)));
    }
  }
}

TEST(Signals, ABroadcastToAllProcessesCountsOnce) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000", "parallel.dp=2"}));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > 1; }));
  const std::vector<pid_t> ranks = children_of(program.pid());
  ASSERT_EQ(ranks.size(), 2u);
  for (const pid_t rank : ranks) ::kill(rank, SIGTERM);
  const size_t before = num_steps(run, "tiny");
  EXPECT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > before + 2; }));
  for (const pid_t rank : ranks) ::kill(rank, SIGTERM);
  const Ended ended = stop(program, SIGTERM);
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  expect_parts(ended.err, {"SIGTERM: saved at step"});
}

TEST(Signals, NohupIsRespected) {
  const TinyRun run;
  for (const char* ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    std::signal(SIGHUP, SIG_IGN);
    Program program(run.words("train", {"train.steps=100000", ranks, "name=nohup"}));
    std::signal(SIGHUP, SIG_DFL);
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "nohup") > 1; }));
    program.send(SIGHUP);
    const size_t before = num_steps(run, "nohup");
    EXPECT_TRUE(program.wait_until([&] { return num_steps(run, "nohup") > before + 2; }));
    EXPECT_EQ(stop(program, SIGINT).exit_code, 130);
    std::filesystem::remove_all(run.dir("nohup"));
  }
}

std::string many_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) rows += fmt::format("row {} of many, all alike\n", i);
  return rows;
}

// One that would take minutes. It is repeated when the run resumes.
TEST(Signals, AnEvaluationIsAbandonedAndRepeated) {
  const TinyRun run;
  for (const std::string ranks : {"parallel.dp=1", "parallel.dp=2", "parallel.tp=2"}) {
    const std::string name = ranks;
    const std::vector<std::string> sets = {
        "name=" + name, ranks, "train.eval_every=1",
        fmt::format("data.eval=[{}]", (run / "eval.txt").string())};
    run.write("eval.txt", many_rows(400'000));
    Program program(run.words("train", sets));
    ASSERT_TRUE(program.wait_until([&] { return num_steps(run, name) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Ended ended = stop(program, SIGTERM);
    EXPECT_EQ(ended.exit_code, 143) << ended.err;
    expect_parts(ended.err, {"step 1: the evaluation was abandoned", "nothing of it is recorded",
                             "SIGTERM: saved at step 1"});
    EXPECT_EQ(num_steps(run, name), 1u);
    EXPECT_TRUE(metric_texts(run.dir(name), "eval_loss").empty());
    run.write("eval.txt", many_rows(20));
    run.train_well(sets);
    EXPECT_EQ(metric_texts(run.dir(name), "eval_loss").size(), 6u);
    EXPECT_EQ(metric_lines(run.dir(name))[1].at("step").as_int(), 1);
  }
}

TEST(Signals, WeftEvalReportsPartialResults) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  run.write("eval.txt", many_rows(400'000));
  const auto words =
      run.words("eval", {fmt::format("data.eval=[{}]", (run / "eval.txt").string())}, {"--json"});
  Ended ended;
  // How long reading the rows takes depends on the machine: signal later, until something is
  // evaluated.
  for (int64_t ms = 200; ms < 60'000; ms *= 2) {
    Program program(words);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    ASSERT_TRUE(program.is_running()) << ms;
    ended = stop(program, SIGINT);
    if (contains(ended.out, "\"stopped_by\"")) break;
    ASSERT_TRUE(ended.exit_code == 130 || ended.signal == SIGINT) << ended.err;
  }
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  expect_parts(ended.err,
               {"SIGINT: stopping", "SIGINT: partial results: the loss covers the first"});
  expect_parts(ended.out, {"\"stopped_by\": \"SIGINT\"", "\"part\": 0"});
}

// Blocks of the token cache that nobody builds: their state is cleared in the index, and the test
// holds the lock, as another tokenizing process would.
TEST(Signals, ARunThatWaitsForRowsSavesAndEnds) {
  const TinyRun run;
  std::string rows;
  for (int i = 0; i < 9000; ++i) rows += std::string(1000, static_cast<char>('a' + i % 26)) + "\n";
  run.write("train.txt", rows);
  const StartOptions options{.env = {{"WEFT_CACHE", (run / "cache").string()}}};
  const std::vector<std::string> sets = {"data.shuffle=false", "train.steps=100000",
                                         "checkpoint.every=100000"};
  {
    Program first(run.words("train", sets), options);
    ASSERT_TRUE(first.wait_until([&] { return num_steps(run, "tiny") > 400; }));
    EXPECT_EQ(stop(first, SIGTERM).exit_code, 143);
  }
  std::filesystem::path folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "cache")) {
    // The line index of the text has a folder of its own, without tokens.
    if (entry.path().filename() == "tokens" && entry.file_size() > 0)
      folder = entry.path().parent_path();
  }
  // data/token_file.h: a header of 32 bytes, then records of 32 with the state at 24.
  std::fstream index(folder / "index", std::ios::in | std::ios::out | std::ios::binary);
  for (int block = 3; block < 18; ++block) {
    index.seekp(32 + 32 * block + 24);
    index.write("\0\0\0\0", 4);
  }
  index.close();
  const int lock = ::open((folder / "lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  for (const std::string ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    std::vector<std::string> words = sets;
    words.push_back("name=" + ranks);
    words.push_back(ranks);
    Program program(run.words("train", words), options);
    const auto waits = [&] { return num_steps(run, ranks) >= 3 * 512 / 8 - 2; };
    ASSERT_TRUE(program.wait_until(waits)) << num_steps(run, ranks);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Ended ended = stop(program, SIGTERM);
    EXPECT_EQ(ended.exit_code, 143) << ended.err;
    expect_parts(ended.err, {fmt::format("SIGTERM: saved at step {}", num_steps(run, ranks))});
    EXPECT_LE(num_steps(run, ranks), size_t{3 * 512 / 8});
  }
  ::close(lock);
}

}  // namespace
}  // namespace weft::testing
