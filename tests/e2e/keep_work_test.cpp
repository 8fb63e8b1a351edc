// tests/e2e/keep_work_test.cpp: no start of a run loses what an earlier one saved.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

Ended train_with_faults(const TinyRun& run, const std::string& rules,
                        const std::vector<std::string>& sets,
                        const std::vector<std::string>& more = {}) {
  StartOptions options;
  options.env = fault_env(rules);
  return run_to_end(run.words("train", sets, more), options);
}

void damage(const TinyRun& run, int64_t step) {
  flip_in_the_middle(run.checkpoint(step) / "rank-00000.safetensors");
}

// 8 steps of which 6 are done, three checkpoints; without a final/ it is not finished.
struct StoppedRun : TinyRun {
  StoppedRun() {
    train_well();
    fs::remove_all(dir() / "final");
  }
  const std::vector<std::string> more = {"train.steps=8"};
};

TEST(KeepWork, UnreadableFilesStopTheRunAndChangeNothing) {
  const StoppedRun run;
  run.train_well({"name=whole", "train.steps=8"});
  const auto before = bytes_below(run.dir());
  for (const char* fault :
       {"open:EACCES:step-00000006/rank-00000", "open:EMFILE:step-00000006/state.json",
        "open:ENOMEM:step-00000006/COMMITTED", "read:EIO:step-00000006/index.json",
        "read:EIO:step-00000006/rank-00000:1", "read:EIO:step-00000006/rank-00000:9",
        "stat:ESTALE:step-00000006/COMMITTED", "stat:EACCES:checkpoints/step-00000006",
        "opendir:EACCES:tiny/checkpoints", "opendir:EMFILE:tiny/checkpoints",
        "readdir:EIO:tiny/checkpoints", "open:EIO:step-00000006/config.json",
        "open:EACCES:tiny/run.yaml"}) {
    const Ended ended = train_with_faults(run, fault, run.more);
    EXPECT_EQ(ended.exit_code, 1) << fault << ended.err;
    const std::string name = std::string(fault).substr(std::string(fault).rfind('/') + 1);
    expect_parts(ended.err, {"error: cannot ", name.substr(0, name.find(':'))});
    EXPECT_EQ(bytes_below(run.dir()), before) << fault << ended.err;
  }
  run.train_well(run.more);
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("whole")));
}

// Damaged folders show that something was saved, even where the events are lost.
TEST(KeepWork, DamagedCheckpointsWithoutEventsAreNotStartedOver) {
  const StoppedRun run;
  for (const int64_t step : {2, 4, 6}) damage(run, step);
  fs::remove(run.dir() / "events.jsonl");
  const Ended ended = run.train(run.more);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"--overwrite"});
  EXPECT_FALSE(fs::exists(run.dir() / "final"));
}

// Events are read only where there is no sound checkpoint.
TEST(KeepWork, UnreadableEventsStopTheRun) {
  const StoppedRun run;
  fs::remove_all(run.dir() / "checkpoints");
  const auto before = bytes_below(run.dir());
  const Ended ended = train_with_faults(run, "open:EACCES:events.jsonl", run.more);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"events.jsonl", "Permission denied"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

TEST(KeepWork, FewOpenFilesLoseNothing) {
  const StoppedRun run;
  const auto before = bytes_below(run.dir());
  int refused = 0;
  for (rlim_t files = 3; files < 40; ++files) {
    StartOptions options;
    options.open_files = files;
    const Ended ended = run_to_end(run.words("train", run.more), options);
    if (ended.exit_code == 0) break;
    ++refused;
    for (const auto& [path, bytes] : before) {
      if (path.find("step-") == std::string::npos && path.find("final") == std::string::npos)
        continue;
      EXPECT_EQ(fs::is_directory(path) ? "folder" : slurp(path), bytes) << files << path;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(fs::exists(run.checkpoint(8)));
}

// Every rank opens the checkpoint; nothing is changed before all of them could.
TEST(KeepWork, ARankThatCannotReadStopsAllOfThem) {
  const TinyRun run;
  const std::vector<std::string> first = {"parallel.dp=2"},
                                 more = {"parallel.dp=2", "train.steps=8"};
  run.train_well(first);
  const auto before = bytes_below(run.dir());
  // Rank 0 has opened state.json twice when all ranks load.
  const Ended rank_0 = train_with_faults(run, "open:EMFILE:step-00000006/state.json:3", more);
  EXPECT_EQ(rank_0.exit_code, 1) << rank_0.err;
  expect_parts(rank_0.err, {"state.json", "Too many open files", "ulimit -n"});
  const Ended all = train_with_faults(run, "open:EACCES:step-00000004/rank-0000", more,
                                      {"--resume", run.checkpoint(4).string()});
  EXPECT_EQ(all.exit_code, 1) << all.err;
  expect_parts(all.err, {"rank-0000", "Permission denied"});
  auto after = bytes_below(run.dir());
  const std::string events = (run.dir() / "events.jsonl").string();
  EXPECT_TRUE(after[events].starts_with(before.at(events)));
  after[events] = before.at(events);  // the supervisor records failed ranks
  EXPECT_EQ(after, before);
  run.train_well(more);
}

TEST(KeepWork, ADamagedCheckpointIsKeptAndReportedEvenInQuiet) {
  const StoppedRun run;
  run.train_well({"name=whole", "train.steps=8"});
  damage(run, 6);
  const std::string bytes = slurp(run.checkpoint(6) / "rank-00000.safetensors");
  const Ended ended = run.train(run.more, {"--quiet"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"is damaged", "kept as", "step-00000006.damaged"});
  const fs::path kept = run.checkpoint(6).string() + ".damaged";
  EXPECT_EQ(slurp(kept / "rank-00000.safetensors"), bytes);
  const auto events = event_lines(run.dir(), "damaged");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("renamed").as_string(), kept.string());
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("whole")));
  EXPECT_EQ(metric_texts(run.dir(), "loss"), metric_texts(run.dir("whole"), "loss"));
  // Again, the same step: another name.
  damage(run, 6);
  damage(run, 8);
  fs::remove_all(run.dir() / "final");
  run.train_well({"train.steps=9"});
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_TRUE(fs::exists(kept.string() + "-2"));
  EXPECT_TRUE(fs::exists(run.checkpoint(8).string() + ".damaged"));
}

TEST(KeepWork, AFolderWithoutCommittedIsKept) {
  const StoppedRun run;
  fs::remove(run.checkpoint(6) / "COMMITTED");
  run.train_well(run.more);
  EXPECT_TRUE(fs::exists(run.checkpoint(6).string() + ".damaged/rank-00000.safetensors"));
  EXPECT_TRUE(fs::exists(run.checkpoint(6) / "COMMITTED"));
}

// Other commands only read.
TEST(KeepWork, InspectAndHashRenameNothing) {
  const StoppedRun run;
  damage(run, 6);
  const auto before = bytes_below(run.dir());
  EXPECT_EQ(run_to_end({"hash", run.dir().string()}).exit_code, 2);
  run_to_end({"inspect", run.dir().string()});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

TEST(KeepWork, WithoutASoundOneItDoesNotStartOver) {
  const TinyRun run;
  run.train_well({"checkpoint.keep=1"});
  fs::remove_all(run.dir() / "final");
  damage(run, 6);
  const auto before = bytes_below(run.dir());
  const Ended refused = run.train();
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"no sound one is left", "step-00000006", "damaged", "--overwrite",
                             "--resume PATH"});
  EXPECT_EQ(run.train({}, {"--resume", "never"}).exit_code, 2);
  EXPECT_EQ(bytes_below(run.dir()), before);
  // Set aside by hand: still there.
  fs::rename(run.checkpoint(6), run.checkpoint(6).string() + ".damaged");
  fs::remove(run.dir() / "events.jsonl");
  expect_parts(run.train().err, {"set aside: checkpoints/step-00000006.damaged"});
  run.train_well({}, {"--overwrite"});
  EXPECT_FALSE(fs::exists(run.checkpoint(6).string() + ".damaged"));
}

TEST(KeepWork, RemovedCheckpointsOfAnUnfinishedRunAreDetected) {
  const TinyRun run;
  {
    Program program(run.words("train", {"train.steps=100000", "checkpoint.every=1"}));
    program.wait_until([&] { return event_lines(run.dir(), "checkpoint").size() > 2; });
    program.send(SIGKILL);
    program.wait();
  }
  fs::remove_all(run.dir() / "checkpoints");
  const auto before = bytes_below(run.dir());
  const Ended refused = run.train({"train.steps=100000", "checkpoint.every=1"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"had checkpoints", "were removed", "--overwrite"});
  EXPECT_EQ(bytes_below(run.dir()), before);
  // A partial line is enough.
  std::string events = slurp(run.dir() / "events.jsonl");
  const size_t at = events.find("/step-");
  ASSERT_NE(at, std::string::npos);
  run.write("runs/tiny/events.jsonl", events.substr(0, at + 8));
  EXPECT_EQ(run.train({"train.steps=100000", "checkpoint.every=1"}).exit_code, 2);
}

TEST(KeepWork, NeverCommittedStartsAtZeroWithAMessage) {
  const TinyRun run;
  {
    Program program(run.words("train", {"train.steps=100000", "checkpoint.every=100000"}));
    program.wait_until([&] { return !metric_texts(run.dir(), "loss").empty(); });
    program.send(SIGKILL);
    program.wait();
  }
  const Ended ended = run.train({"train.steps=6"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"has no checkpoint: the run starts at step 0"});
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 6u);
}

// Killed before its first step-N, twice: the best is all that was saved, and its steps are not
// lost.
TEST(KeepWork, WhereOnlyTheBestWasSavedTheRunResumesFromIt) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  for (const std::string every : {"1", "100000"}) {  // the second start saves nothing
    Program program(run.words("train", {eval, "train.steps=100000", "checkpoint.every=100000",
                                        "train.eval_every=" + every}));
    program.wait_until([&] {
      return event_lines(run.dir(), "checkpoint").size() > 1 &&
             event_lines(run.dir(), "started").size() == (every == "1" ? 1 : 2);
    });
    program.send(SIGKILL);
    program.wait();
  }
  const fs::path best = run.dir() / "checkpoints/best";
  ASSERT_TRUE(fs::exists(best));
  const int64_t step = parse_json(slurp(best / "state.json"), "state.json").at("step").as_int();
  const std::string steps = fmt::format("train.steps={}", step + 3);
  const Ended ended = run.train({eval, steps, "train.eval_every=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {fmt::format("the run resumes from that, of step {}", step)});
  EXPECT_EQ(std::ssize(metric_texts(run.dir(), "loss")), step + 3);
  const TinyRun undisturbed;
  const std::string other_eval = "data.eval=[" + (undisturbed / "eval.txt").string() + "]";
  undisturbed.train_well({other_eval, steps, "train.eval_every=1"});
  EXPECT_EQ(hash_of(run.dir() / "final"), hash_of(undisturbed.dir() / "final"));
}

TEST(KeepWork, WhereOnlyADamagedBestIsLeftNothingIsTrainedAgain) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  {
    Program program(run.words(
        "train", {eval, "train.steps=100000", "checkpoint.every=100000", "train.eval_every=1"}));
    program.wait_until([&] { return event_lines(run.dir(), "checkpoint").size() > 1; });
    program.send(SIGKILL);
    program.wait();
  }
  flip_in_the_middle(run.dir() / "checkpoints/best/rank-00000.safetensors");
  const Ended ended = run.train({eval, "train.eval_every=1"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"no sound one is left", "damaged:", "best", "--overwrite"});
  EXPECT_TRUE(fs::exists(run.dir() / "checkpoints/best"));
}

TEST(KeepWork, LaterCheckpointsAreAbandonedNotRemoved) {
  const TinyRun run;
  run.train_well({"train.steps=10", "checkpoint.keep=10"});
  const std::string hash = hash_of(run.checkpoint(10)), final_hash = hash_of(run.dir() / "final");
  const Ended ended = run.train({"train.steps=4", "train.lr=0.02", "checkpoint.keep=1"},
                                {"--resume", run.checkpoint(2).string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"abandoned/step-00000010", "abandoned/step-00000004"});
  const fs::path abandoned = run.dir() / "checkpoints/abandoned";
  for (const char* name : {"step-00000004", "step-00000006", "step-00000008", "step-00000010"})
    EXPECT_TRUE(fs::exists(abandoned / name / "COMMITTED")) << name;
  EXPECT_EQ(hash_of(abandoned / "step-00000010"), hash);
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.checkpoint(4)));  // listing skips them
  EXPECT_EQ(event_lines(run.dir(), "abandoned").size(), 4u);
  // And back to what was abandoned.
  const Ended back = run.train({"train.steps=10", "train.lr=0.01"},
                               {"--resume", (abandoned / "step-00000010").string()});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_TRUE(hash_of(run.dir()) == hash);
  EXPECT_TRUE(hash_of(run.dir() / "final") == final_hash);
}

// A smaller rate learns more slowly: better than step 2, worse than step 8.
TEST(KeepWork, ABetterBestOfLaterStepsIsAbandonedNotReplaced) {
  const TinyRun run;
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  run.train_well({eval, "train.eval_every=2", "train.steps=8", "checkpoint.keep=10"});
  const fs::path best = run.dir() / "checkpoints/best", moved = run.dir() / "checkpoints/abandoned";
  const auto step_of = [](const fs::path& folder) {
    return parse_json(slurp(folder / "state.json"), "state.json").at("step").as_int();
  };
  ASSERT_EQ(step_of(best), 8);
  const std::string bytes = slurp(best / "rank-00000.safetensors");
  const Ended ended = run.train({eval, "train.eval_every=2", "train.steps=4", "train.lr=0.005"},
                                {"--resume", run.checkpoint(2).string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"abandoned/best"});
  EXPECT_EQ(slurp(moved / "best/rank-00000.safetensors"), bytes);
  EXPECT_EQ(step_of(best), 4);
  // One that is known to the starting state stays.
  run.train_well({eval, "train.eval_every=2", "train.steps=6", "train.lr=0.005"},
                 {"--resume", run.checkpoint(4).string()});
  EXPECT_FALSE(fs::exists(moved / "best-2"));
}

TEST(KeepWork, AFolderWithoutCommittedIsKeptEvenWithAPath) {
  const StoppedRun run;
  fs::remove(run.checkpoint(6) / "COMMITTED");
  const std::string bytes = slurp(run.checkpoint(6) / "rank-00000.safetensors");
  run.train_well(run.more, {"--resume", run.checkpoint(4).string()});
  EXPECT_EQ(slurp(run.checkpoint(6).string() + ".damaged/rank-00000.safetensors"), bytes);
  EXPECT_TRUE(fs::exists(run.checkpoint(6) / "COMMITTED"));
}

TEST(KeepWork, NeverDoesNotDiscardAFolderWithoutCommitted) {
  const TinyRun run;
  fs::create_directories(run.checkpoint(6));
  run.write("runs/tiny/checkpoints/step-00000006/rank-00000.safetensors", "all that is left");
  const auto before = bytes_below(run.dir());
  const Ended refused = run.train({}, {"--resume", "never"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"has checkpoints", "--overwrite"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

TEST(KeepWork, OverwriteAndAPathContradictEachOther) {
  const StoppedRun run;
  const auto before = bytes_below(run.dir());
  const Ended ended = run.train(run.more, {"--overwrite", "--resume", run.checkpoint(4).string()});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"--overwrite", "--resume", "give only one of the two"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

// A process dies while pruning: the next start recognizes the partial deletion.
TEST(KeepWork, AnInterruptedPruningIsNotDamage) {
  const TinyRun run;
  run.train_well({"name=whole", "checkpoint.every=1", "checkpoint.keep=1"});
  for (const int call : {1, 2, 4}) {
    const std::string name = "killed" + std::to_string(call);
    const std::vector<std::string> sets = {"name=" + name, "checkpoint.every=1",
                                           "checkpoint.keep=1"};
    const Ended killed = train_with_faults(
        run, "unlink:KILL:" + name + "/checkpoints/step-00000002.removing/:" + std::to_string(call),
        sets);
    EXPECT_EQ(killed.signal, SIGKILL) << killed.err;
    EXPECT_TRUE(fs::exists(run.checkpoint(2, name).string() + ".removing"));
    const Ended ended = run.train(sets);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_FALSE(contains(ended.err, "damaged")) << ended.err;
    EXPECT_FALSE(fs::exists(run.checkpoint(2, name).string() + ".removing"));
    EXPECT_EQ(hash_of(run.dir(name)), hash_of(run.dir("whole")));
  }
}

}  // namespace
}  // namespace weft::testing
