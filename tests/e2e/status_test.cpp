// tests/e2e/status_test.cpp: weft status, of runs that go on, have ended, or are none.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "tests/e2e/disturbed_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

Ended ask(const fs::path& dir, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"status", dir.string()};
  words.insert(words.end(), more.begin(), more.end());
  return run_to_end(words);
}

Json status_json(const fs::path& dir) {
  const Ended ended = ask(dir, {"--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return parse_json(ended.out, "the status");
}

std::string state_of(const fs::path& dir) { return status_json(dir).at("state").as_string(); }

bool has_file(const TinyRun& run) { return fs::exists(run.dir() / ".status.json"); }

void spoil(const fs::path& path, const std::string& bytes) {
  fs::remove_all(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Status, OfARunThatGoesOnAndThenStops) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000", "parallel.dp=2", "checkpoint.every=50",
                                      "launch.max_restarts=2"}));
  ASSERT_TRUE(program.wait_until([&] { return has_file(run); }));
  const std::vector<pid_t> ranks = children_of(program.pid());
  const Json now = status_json(run.dir());
  EXPECT_EQ(now.at("state").as_string(), "running") << now.dump(2);
  EXPECT_TRUE(now.at("live").as_bool());
  EXPECT_EQ(now.at("total_steps").as_int(), 100000);
  EXPECT_GT(now.at("step").as_int(), 0);
  EXPECT_GT(now.at("steps_per_s").as_number(), 0);
  EXPECT_GT(now.at("tokens_per_s").as_number(), 0);
  EXPECT_GT(now.at("eta_s").as_number(), 0);
  EXPECT_GT(now.at("memory_bytes").as_int(), 0);
  EXPECT_GT(now.at("planned_bytes").as_int(), 0);
  EXPECT_EQ(now.at("restarts_left").as_int(), 2);
  EXPECT_EQ(now.at("pid").as_int(), program.pid());
  ASSERT_EQ(now.at("ranks").as_array().size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    const Json& rank = now.at("ranks").as_array()[r];
    EXPECT_EQ(rank.at("pid").as_int(), ranks[r]);
    EXPECT_GT(rank.at("step").as_int(), 0);
    EXPECT_LT(rank.at("age_s").as_number(), 30);
    EXPECT_GT(rank.at("memory_bytes").as_int(), 0);
  }
  // A dead rank, and what is left of the budget; the run notices nothing else.
  ::kill(ranks[1], SIGKILL);
  ASSERT_TRUE(program.wait_until([&] {
    const Json later = status_json(run.dir());
    return later.at("restarts").as_int() == 1 && later.at("state").as_string() == "running" &&
           later.at("deaths").as_int() == 1;
  }));
  expect_parts(ask(run.dir()).out,
               {": running, step ", " of 100000", "rank 1 was killed by SIGKILL", " steps/s, ",
                " left", " planned", "1 of 2 used, 1 left; 1 in the run so far", "checkpoint",
                "last event", "process  phase"});
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
  const Json after = status_json(run.dir());
  EXPECT_EQ(after.at("state").as_string(), "stopped");
  EXPECT_FALSE(after.at("live").as_bool());
  EXPECT_TRUE(after.at("eta_s").is_null());
  EXPECT_EQ(after.at("last_event").at("event").as_string(), "stopped");
}

TEST(Status, OfOneRankAndOfItsEnd) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000"}));
  ASSERT_TRUE(program.wait_until([&] { return has_file(run); }));
  const Json now = status_json(run.dir());
  EXPECT_EQ(now.at("state").as_string(), "running");
  ASSERT_EQ(now.at("ranks").as_array().size(), 1u);
  EXPECT_EQ(now.at("ranks").as_array()[0].at("pid").as_int(), program.pid());
  program.send(SIGSTOP);
  std::filesystem::last_write_time(run.dir() / ".status.json",
                                   fs::file_time_type::clock::now() - std::chrono::minutes(1));
  expect_parts(status_json(run.dir()).at("note").as_string(), {"has not written its status for "});
  program.send(SIGKILL);
  program.wait();
  const Json killed = status_json(run.dir());
  EXPECT_EQ(killed.at("state").as_string(), "failed");
  expect_parts(killed.at("cause").as_string(), {"its process is gone"});
  run.train_well({"name=well"});
  const Json well = status_json(run.dir("well"));
  EXPECT_EQ(well.at("state").as_string(), "finished");
  EXPECT_EQ(well.at("step").as_int(), 6);
  EXPECT_EQ(well.at("total_steps").as_int(), 6);
  EXPECT_EQ(well.at("checkpoint").at("step").as_int(), 6);
  for (const char* ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    const std::string name = std::string("bad") + ranks[12];
    EXPECT_EQ(run.train({"name=" + name, "train.lr=1e30", "train.steps=60", ranks}).exit_code, 1);
    const Json bad = status_json(run.dir(name));
    EXPECT_EQ(bad.at("state").as_string(), "failed") << bad.dump(2);
    expect_parts(bad.at("cause").as_string(), {"step "});
  }
}

TEST(Status, WhereThereIsNoRun) {
  const TinyRun run;
  run.train_well({"train.steps=2"});
  const auto refused = [&](const fs::path& dir, const std::vector<std::string>& parts) {
    const Ended ended = ask(dir);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
  };
  refused(run / "runs/tinny", {"does not exist", "tiny", "hint: "});
  refused(run / "train.txt", {"is a file, not a run directory"});
  refused(run / "model", {"holds no run", "<storage>/<name>"});
  refused(run / "runs", {"holds no run", "weft status ", "runs/tiny"});
}

// Whatever the files hold, the answer is bounded and safe to print.
TEST(Status, OfDamagedFiles) {
  const TinyRun run;
  run.train_well({"train.steps=4"});
  const fs::path file = run.dir() / ".status.json", events = run.dir() / "events.jsonl",
                 metrics = run.dir() / "metrics.jsonl";
  const std::string noise = "\x1b[2J\xff" + std::string(1, '\0') + "\n{\"event\": 3}\n[[[[";
  const std::string lies =
      R"({"state": "run\u001b[2Jning", "pid": 99999999999, "count": 1, "start_ticks": -1,)"
      R"( "host": 3, "ranks": [7, {"rank": "x", "phase": "\u001b[1m", "age_s": 1e999}]})";
  for (const std::string& bytes :
       {std::string(), noise, lies, std::string(2 << 20, '['), std::string("{\"state\": 1}")}) {
    spoil(file, bytes);
    EXPECT_EQ(state_of(run.dir()), "finished") << bytes.substr(0, 40);
    EXPECT_FALSE(contains(ask(run.dir()).out, "\x1b"));
  }
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(state_of(run.dir()), "finished");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // nobody writes into it
  EXPECT_EQ(state_of(run.dir()), "finished");
  fs::remove(file);
  spoil(metrics, noise + std::string(1 << 20, 'x'));
  EXPECT_TRUE(status_json(run.dir()).at("step").is_null());
  spoil(events, noise);
  EXPECT_EQ(state_of(run.dir()), "failed");
  EXPECT_FALSE(contains(ask(run.dir()).out, "\x1b"));
}

}  // namespace
}  // namespace weft::testing
