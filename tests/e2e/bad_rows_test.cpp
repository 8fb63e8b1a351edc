// tests/e2e/bad_rows_test.cpp: every kind of bad input file, as a user of `weft train` sees it.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

const std::string kFixtures = "tests/data/data/";

// The run over a file of the folder, in file order.
std::vector<std::string> over(const std::vector<std::filesystem::path>& files) {
  std::string list;
  for (const auto& file : files) list += (list.empty() ? "" : ", ") + file.string();
  return {"data.train=[" + list + "]", "data.shuffle=false", "train.steps=2"};
}

void expect_rows_refused(const TinyRun& run, const std::vector<std::filesystem::path>& files,
                         const std::vector<std::string>& parts) {
  const Ended ended = run.train(over(files));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, parts);
}

std::string good_rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  return text;
}

TEST(BadRows, ColumnsAndCells) {
  const TinyRun run;
  run.write("a.jsonl", good_rows(10) + "{\"body\": \"no text\"}\n");
  expect_rows_refused(run, {run / "a.jsonl"}, {"a.jsonl:11", "no column 'text'", "body"});
  run.write("b.jsonl", good_rows(3) + "{\"text\": {\"a\": 1}}\n" + good_rows(9));
  expect_rows_refused(run, {run / "b.jsonl"}, {"b.jsonl:4", "text"});
  run.write("c.jsonl", good_rows(4) + "[1, 2]\n" + good_rows(9));
  expect_rows_refused(run, {run / "c.jsonl"}, {"c.jsonl:5", "object"});
  run.write("d.csv", "text,n\na,1\nb,2\nc\n");
  expect_rows_refused(run, {run / "train.txt", run / "d.csv"}, {"d.csv:4", "1 fields"});
  expect_rows_refused(run, {kFixtures + "cut.parquet"}, {"cut.parquet"});
}

// The rows after the quote were lost silently, as long as no step reached that row.
TEST(BadRows, AnUnclosedQuoteIsReportedBeforeTheRunStarts) {
  const TinyRun run;
  std::string rows = "text,n\n";
  for (int i = 0; i < 40; ++i) rows += "row " + std::to_string(i) + ",1\n";
  run.write("a.csv", rows + "\"never closed,1\n" + "row,1\nrow,1\n");
  expect_rows_refused(run, {run / "a.csv"}, {"a.csv:42: an opening quote is never closed"});
  EXPECT_FALSE(std::filesystem::exists(run / "runs"));
}

// Rows with a prompt and no answer; nothing closes it.
std::string pairs(int count, const std::string& answer) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"q\": \"ask me\", \"a\": \"" + answer + "\"}\n";
  return text;
}

std::vector<std::string> over_pairs(const std::filesystem::path& file,
                                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = over({file});
  sets.insert(sets.end(), {"data.source={q}", "data.target={a}", "data.append_eos=false"});
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(BadRows, RowsWithoutAnyTargetAreRejected) {
  const TinyRun run;
  run.write("a.jsonl", pairs(60, ""));
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    for (const char* dp : {"1", "2"}) {
      const Ended ended =
          run.train(over_pairs(run / "a.jsonl", {std::string("data.layout=") + layout,
                                                 std::string("parallel.dp=") + dp}));
      EXPECT_EQ(ended.exit_code, 2) << layout << dp << ended.err;
      expect_parts(ended.err, {"has a target, so nothing would be learned", "data.target"});
      EXPECT_FALSE(std::filesystem::exists(run / "runs")) << "something was written";
    }
  }
}

TEST(BadRows, SomeRowsWithoutATargetAreWarnedOfAndCounted) {
  const TinyRun run;
  run.write("a.jsonl", pairs(10, "") + pairs(30, "yes"));
  const Ended ended = run.train(over_pairs(run / "a.jsonl"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err,
               {"warning: ", "a.jsonl:1: this row has no target", "10 of 16 rows had no target"});
  EXPECT_EQ(metric_texts(run.dir(), "loss")[0], "null");
  EXPECT_NE(metric_texts(run.dir(), "loss")[1], "null");
}

std::vector<std::string> evaluated_over(const TinyRun& run, const std::string& file,
                                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets =
      over_pairs(run / "a.jsonl", {"data.eval=[" + (run / file).string() + "]"});
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(BadRows, EvaluationRowsWithoutAnyTargetAreRejected) {
  const TinyRun run;
  run.write("a.jsonl", pairs(30, "yes"));
  run.write("none.jsonl", pairs(9, ""));
  for (const char* dp : {"1", "2"}) {
    const Ended ended =
        run.train(evaluated_over(run, "none.jsonl", {std::string("parallel.dp=") + dp}));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"none of the 9 rows of data.eval has a target",
                             "there is no loss to measure", "hint: set data.target"});
    EXPECT_FALSE(std::filesystem::exists(run / "runs")) << "something was written";
  }
  run.train_well(over_pairs(run / "a.jsonl"));
  const Ended ended = run_to_end(run.words("eval", evaluated_over(run, "none.jsonl")));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(ended.out, "");
  expect_parts(ended.err, {"none of the 9 rows of data.eval has a target"});
  const Ended part =
      run_to_end(run.words("eval", over_pairs(run / "none.jsonl", {"data.eval_fraction=0.5"})));
  EXPECT_EQ(part.exit_code, 2) << part.err;
  expect_parts(part.err, {"that data.eval_fraction selects from data.train has a target"});
}

TEST(BadRows, EvaluationRowsWithoutATargetAreCountedOnce) {
  const TinyRun run;
  run.write("a.jsonl", pairs(30, "yes"));
  run.write("some.jsonl", pairs(3, "") + pairs(9, "yes"));
  const std::string told = "evaluation: 3 of 12 rows have no target and do not count in the loss";
  for (const char* dp : {"1", "2"}) {
    const Ended ended = run.train(
        evaluated_over(run, "some.jsonl", {std::string("parallel.dp=") + dp, "train.eval_every=1"}),
        {"--overwrite"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const size_t at = ended.err.find(told);
    ASSERT_NE(at, std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find(told, at + 1), std::string::npos) << ended.err;
  }
  const Ended ended = run_to_end(run.words("eval", evaluated_over(run, "some.jsonl")));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"warning: " + told, "some.jsonl:1"});
  EXPECT_FALSE(contains(ended.err, "nothing is learned from them")) << ended.err;
}

// One row among the packed ones has a target, but not among those of the only step.
TEST(BadRows, ARunThatLearnedNothingWritesNoModel) {
  const TinyRun run;
  run.write("a.jsonl", pairs(60, "") + "{\"q\": \"\", \"a\": \"ab\"}\n");
  const auto sets = over_pairs(run / "a.jsonl", {"data.layout=pack", "train.steps=1",
                                                 "train.global_batch=2", "train.micro_batch=2"});
  for (int start = 0; start < 2; ++start) {  // and the second says the same
    const Ended ended = run.train(sets);
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    expect_parts(ended.err, {"none of the 1 steps changed anything", "no final/ is written"});
    EXPECT_FALSE(std::filesystem::exists(run.dir() / "final"));
  }
}

TEST(BadRows, NullCellsAreEmptyAndCounted) {
  const TinyRun run;
  run.write("a.jsonl", "{\"text\": null}\n" + good_rows(20) + "{\"text\": null}\n");
  const Ended ended = run.train(over({run / "a.jsonl"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"2 rows dropped", "2 null cells treated as empty"});
}

TEST(BadRows, AnEmptyFileAmongGoodOnesIsNotAnError) {
  const TinyRun run;
  run.write("empty.txt", "");
  run.write("empty.jsonl", "\n\n");
  const Ended ended = run.train(over({run / "empty.txt", run / "train.txt", run / "empty.jsonl"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 2u);
}

TEST(BadRows, BinaryFilesAreNamed) {
  const TinyRun run;
  run.write("rows.model", std::string("\n\0\x01\x02 rows\n", 10));
  expect_rows_refused(run, {run / "rows.model"}, {"rows.model", "not a text file"});
}

TEST(BadRows, AChangedFileIsRefusedAtResume) {
  const TinyRun run;
  run.train_well({"train.steps=2"});
  const std::string hash = hash_of(run.dir());
  run.write("train.txt", slurp(run / "train.txt") + "one row more\n");
  const Ended ended = run.train({"train.steps=4"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"differ from those of the checkpoint", "--overwrite"});
  EXPECT_EQ(hash_of(run.dir()), hash);
}

// Packed text has a cache on disk, however small it is.
TEST(BadRows, ADamagedCacheIsRebuiltWithAWarning) {
  const TinyRun run;
  StartOptions options;
  options.env["WEFT_CACHE"] = (run / "cache").string();
  const auto train = [&](const std::string& name) {
    auto sets = over({kFixtures + "rows.jsonl.gz"});
    sets.push_back("name=" + name);
    return run_to_end(run.words("train", sets), options);
  };
  ASSERT_EQ(train("whole").exit_code, 0);
  int damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "cache")) {
    if (entry.path().filename() != "tokens") continue;
    std::string bytes = slurp(entry.path());
    bytes[bytes.size() / 4] = static_cast<char>(~bytes[bytes.size() / 4]);
    std::ofstream(entry.path(), std::ios::binary) << bytes;
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  const Ended ended = train("again");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"token cache", "damaged, rebuilding"});
  EXPECT_EQ(metric_texts(run.dir("whole"), "loss"), metric_texts(run.dir("again"), "loss"));
}

}  // namespace
}  // namespace weft::testing
