// tests/e2e/status_test.cpp: weft status, of runs that go on, have ended, or are none.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/e2e/disturbed_run.h"
#include "tests/e2e/node_run.h"
#include "train/lease.h"

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

std::string told_state_of(const fs::path& dir) { return status_json(dir).at("state").as_string(); }

bool has_file(const TinyRun& run) { return fs::exists(run.dir() / ".status.json"); }

void spoil(const fs::path& path, const std::string& bytes) {
  fs::remove_all(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Status, OfARunThatGoesOnAndThenStops) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.steps=100000", "parallel.dp=2",
                                         "checkpoint.every=50", "launch.max_restarts=2",
                                         "launch.restart_reset_steps=0"};
  Program program(run.words("train", sets), slowly());
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
  EXPECT_EQ(now.at("host").as_string(), host_name());
  ASSERT_EQ(now.at("ranks").as_array().size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    const Json& rank = now.at("ranks").as_array()[r];
    EXPECT_EQ(rank.at("rank").as_int(), static_cast<int64_t>(r));
    EXPECT_EQ(rank.at("pid").as_int(), ranks[r]);
    EXPECT_EQ(rank.at("host").as_string(), host_name());
    EXPECT_EQ(slurp(fmt::format("/proc/{}/comm", ranks[r])), "weft\n");
    EXPECT_GT(rank.at("step").as_int(), 0);
    EXPECT_LT(rank.at("age_s").as_number(), 30);
    EXPECT_GT(rank.at("memory_bytes").as_int(), 0);
  }
  // A dead rank, and what is left of the budget; the run notices nothing else.
  ::kill(ranks[1], SIGKILL);
  ASSERT_TRUE(program.wait_until([&] {
    const Json later = status_json(run.dir());
    return later.at("restarts").as_int() == 1 && later.at("state").as_string() == "running" &&
           later.at("deaths").as_int() == 1 && !later.at("checkpoint").is_null();
  }));
  expect_parts(ask(run.dir()).out,
               {": running, step ", " of 100000", "rank 1 was killed by SIGKILL", " steps/s, ",
                " left", " planned", "1 of 2 used, 1 left; 1 in the run so far", "checkpoint",
                "last event", fmt::format("rank  {:<20}   process  phase", "host"),
                fmt::format("\n      0  {:<20}  {:>8}  ", host_name(), ranks[0])});
  // A second start names the process to stop: the supervisor, not a rank.
  const Ended second = run_to_end(run.words("train", sets));
  EXPECT_EQ(second.exit_code, 2);
  expect_parts(second.err, {fmt::format("another process is training in {}: process {} on ",
                                        run.dir().string(), program.pid())});
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
  const Json after = status_json(run.dir());
  EXPECT_EQ(after.at("state").as_string(), "stopped");
  EXPECT_FALSE(after.at("live").as_bool());
  EXPECT_TRUE(after.at("eta_s").is_null());
  EXPECT_EQ(after.at("last_event").at("event").as_string(), "stopped");
  expect_parts(ask(run.dir()).out, {"last event  stopped at step "});
}

TEST(Status, OfOneRankAndOfItsEnd) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000"}), slowly());
  ASSERT_TRUE(program.wait_until([&] { return has_file(run); }));
  const Json now = status_json(run.dir());
  EXPECT_EQ(now.at("state").as_string(), "running");
  ASSERT_EQ(now.at("ranks").as_array().size(), 1u);
  EXPECT_EQ(now.at("ranks").as_array()[0].at("pid").as_int(), program.pid());
  program.send(SIGSTOP);
  expect_parts(status_json(run.dir()).at("note").as_string(),
               {fmt::format("the run's process {} is stopped by a signal (kill "
                            "-CONT {} lets it go on); what follows is ",
                            program.pid(), program.pid())});
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
    EXPECT_EQ(bad.at("last_event").at("event").as_string(), "rank failed") << bad.dump(2);
  }
}

TEST(Status, ForgetsRestartsAsTheSupervisorDoes) {
  const TinyRun run;
  Program program(
      run.words("train", {"train.steps=100000", "parallel.dp=2", "launch.restart_reset_steps=10"}));
  ASSERT_TRUE(program.wait_until([&] { return has_file(run); }));
  ::kill(children_of(program.pid()).at(1), SIGKILL);
  EXPECT_TRUE(program.wait_until([&] {
    const Json now = status_json(run.dir());
    return now.at("deaths").as_int() == 1 && now.at("restarts").as_int() == 0 &&
           now.at("restarts_left").as_int() == 2;
  }));
}

// Ranks that are stopped cannot save, so that the first signal does not end the run.
TEST(Status, OfARunThatASecondSignalEnded) {
  const TinyRun run;
  Program program(run.words("train", {"train.steps=100000", "parallel.dp=2"}));
  ASSERT_TRUE(program.wait_until([&] { return has_file(run); }));
  for (const pid_t rank : children_of(program.pid())) ::kill(rank, SIGSTOP);
  program.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.send(SIGINT);
  EXPECT_EQ(program.wait(30).exit_code, 1);
  const Json after = status_json(run.dir());
  EXPECT_EQ(after.at("state").as_string(), "failed");
  expect_parts(after.at("cause").as_string(), {"a second signal ended the run at once"});
  EXPECT_EQ(after.at("last_event").at("event").as_string(), "failed");
  fs::remove(run.dir() / ".status.json");
  EXPECT_EQ(told_state_of(run.dir()), "failed");
}

// Nobody has taken the directory yet.
TEST(Status, OfARunThatWaitsForNodes) {
  const TinyRun run;
  NodeRun waits(run, "nodes", {"parallel.dp=2", "launch.join_timeout_s=3"});
  const fs::path dir = run.dir("nodes");
  ASSERT_TRUE(waits.train().wait_until([&] {
    return fs::exists(dir / ".status.json") &&
           contains(status_json(dir).dump(), "waiting for nodes: 1 of 2 joined (");
  }));
  EXPECT_EQ(told_state_of(dir), "starting");
  expect_parts(ask(dir).out, {"nodes: starting\n", "note", "waiting for nodes: 1 of 2 joined ("});
  EXPECT_EQ(waits.train().wait().exit_code, 75);
  EXPECT_EQ(told_state_of(dir), "failed");
  expect_parts(ask(dir).out, {"cause", "1 of 2 nodes joined within 3 s"});
}

// Anonymous and shared memory of a process, what several share divided among them; as the kernel
// counts.
int64_t proportional_bytes(pid_t pid) {
  std::istringstream lines(slurp(fmt::format("/proc/{}/smaps_rollup", pid)));
  int64_t bytes = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:"))
      bytes += 1024 * std::stoll(line.substr(line.find(':') + 1));
  }
  return bytes;
}

// The supervisor, its nodes' agents with the copies that they keep, and the ranks.
TEST(Status, MemoryOfSeveralNodesIsThatOfAllProcesses) {
  const TinyRun run;
  run.change_config("intermediate_size", Json(8192));  // so that copies weigh something
  NodeRun nodes(run, "nodes", {"parallel.dp=2", "train.steps=100000", "launch.snapshot_every=1"});
  nodes.join();
  double reported = 0, counted = 0;
  const bool agree = nodes.train().wait_until([&] {
    if (!fs::exists(run.dir("nodes") / "metrics.jsonl")) return false;
    const Json now = status_json(run.dir("nodes"));
    if (now.at("state").as_string() != "running" || now.at("step").is_null()) return false;
    std::vector<pid_t> all = {nodes.train().pid(), nodes.agent().pid()};
    for (const pid_t agent : children_of(nodes.train().pid())) all.push_back(agent);
    for (const int node : {0, 1})
      for (const pid_t rank : nodes.ranks_of(node)) all.push_back(rank);
    counted = 0;
    for (const pid_t pid : all) counted += static_cast<double>(proportional_bytes(pid));
    reported = static_cast<double>(now.at("memory_bytes").as_int());
    return all.size() == 5 && std::abs(reported - counted) < 0.05 * counted;
  });
  EXPECT_TRUE(agree) << reported << " reported, " << counted << " counted";
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
    EXPECT_EQ(told_state_of(run.dir()), "finished") << bytes.substr(0, 40);
    EXPECT_FALSE(contains(ask(run.dir()).out, "\x1b"));
  }
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(told_state_of(run.dir()), "finished");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // nobody writes into it
  EXPECT_EQ(told_state_of(run.dir()), "finished");
  fs::remove(file);
  spoil(metrics, noise + std::string(1 << 20, 'x'));
  EXPECT_TRUE(status_json(run.dir()).at("step").is_null());
  spoil(events, noise);
  EXPECT_EQ(told_state_of(run.dir()), "failed");
  EXPECT_FALSE(contains(ask(run.dir()).out, "\x1b"));
}

}  // namespace
}  // namespace weft::testing
