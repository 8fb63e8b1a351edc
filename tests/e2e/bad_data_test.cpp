// tests/e2e/bad_data_test.cpp: rows that cannot be trained on, rows that can be repaired, and
// diverging numbers.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

void expect_data_refused(const TinyRun& run, const std::vector<std::string>& sets,
                         const std::vector<std::string>& parts) {
  const Ended ended = run.train(sets);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, parts);
  EXPECT_FALSE(std::filesystem::exists(run / "runs")) << "something was written";
}

TEST(BadData, TokenBeyondTheVocabulary) {
  const TinyRun run;
  run.change_config("vocab_size", 100);
  expect_data_refused(run, {}, {"100"});
  // The padding token fits, a row does not: reported by file and line.
  run.change_config("vocab_size", 260);
  run.write("tokens/vocab.json", "");
  std::filesystem::create_directory(run / "tokens");
  run.write("tokens/vocab.json", R"({"a": 0, "b": 1, "c": 400})");
  run.write("tokens/merges.txt", "#version: 0.2\n");
  run.write("train.txt", "ab\nab\nab\nab\nab\nab\nab\nabc\n");
  expect_data_refused(run, {"data.tokenizer=" + (run / "tokens").string()},
                      {"train.txt:8", "token id 400", "260"});
}

TEST(BadData, EmptyAndMissingFiles) {
  const TinyRun run;
  run.write("train.txt", "");
  expect_data_refused(run, {}, {"data.train", "no rows", "train.txt"});
  run.write("train.txt", "\n\n\n\n\n\n\n\n\n\n");
  expect_data_refused(run, {}, {"0 usable rows", "8"});
  expect_data_refused(run, {"data.train=[" + (run / "nothing*.txt").string() + "]"},
                      {"nothing*.txt"});
}

TEST(BadData, FewerRowsThanABatch) {
  const TinyRun run;
  expect_data_refused(run, {"train.global_batch=64"}, {"43", "64"});
  expect_data_refused(run, {"data.limit=7"}, {"7", "8"});
  // One of eight is empty: seven are left.
  expect_data_refused(run, {"data.limit=8"}, {"7 usable rows", "global batch of 8"});
}

TEST(BadData, MissingColumnAndOpenBrace) {
  const TinyRun run;
  expect_data_refused(run, {"data.text={text"}, {"data.text", "{"});
  expect_data_refused(run, {"data.text={body}"}, {"train.txt", "body", "text"});
  run.write("rows.jsonl",
            "{\"question\": \"a\"}\n{\"question\": 3}\n{\"question\": [1]}\nno json\n");
  const std::string rows = "data.train=[" + (run / "rows.jsonl").string() + "]";
  expect_data_refused(run, {rows, "train.global_batch=1", "data.shuffle=false"},
                      {"rows.jsonl:1", "text", "question"});
  expect_data_refused(run,
                      {rows, "train.global_batch=4", "data.text={question}", "data.shuffle=false"},
                      {"rows.jsonl:3", "question"});
  expect_data_refused(run, {rows, "train.global_batch=4", "data.text=x y", "data.shuffle=false"},
                      {"rows.jsonl:4", "JSON"});
}

// Chat rows under a run file for plain text, and the reverse: the hint is the key to set.
TEST(BadData, TheColumnOfConversationsIsHinted) {
  const TinyRun run;
  std::string chat;
  for (int i = 0; i < 8; ++i) chat += "{\"id\": 1, \"conversations\": [{\"role\": \"user\"}]}\n";
  run.write("chat.jsonl", chat);
  const std::string rows = "data.train=[" + (run / "chat.jsonl").string() + "]";
  expect_data_refused(run, {rows},
                      {"chat.jsonl:1", "no column 'text', which data.text asks for",
                       "there are: id, conversations", "set data.messages: conversations"});
  expect_data_refused(run, {rows, "data.messages=messages"},
                      {"no column 'messages'", "set data.messages: conversations"});
  expect_data_refused(run, {"data.messages=talk"}, {"no column 'talk'", "there are: text"});
  run.write("rows.csv", "question,sql\na,b\n");
  expect_data_refused(run, {"data.train=" + (run / "rows.csv").string()},
                      {"no column 'text'", "question, sql", "data.text: \"{question}\"",
                       "the first line names the columns"});
  expect_data_refused(
      run, {"data.train=" + (run / "rows.csv").string(), "data.source={q}", "data.target={a}"},
      {"there are no columns 'q' and 'a', which data.source and data.target ask for"});
}

TEST(BadData, OverwriteKeepsTheOldRunWhereTheNewOneCannotStart) {
  const TinyRun run;
  run.train_well();
  const std::string hash = hash_of(run.dir());
  const Ended ended = run.train({"data.text={body}"}, {"--overwrite"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(hash_of(run.dir()), hash);
}

TEST(BadData, InvalidUtf8IsRepairedAndNamed) {
  const TinyRun run;
  std::string text = slurp(run / "train.txt");
  for (int i = 0; i < 12; ++i) text += "bad \xff\xfe row\n";
  run.write("train.txt", text);
  const Ended ended = run.train({"train.steps=14", "data.shuffle=false"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(metric_texts(run.dir(), "loss").size(), 14u);
  expect_parts(ended.err, {"rows with invalid UTF-8 repaired", "train.txt:44", "train.txt:53"});
  EXPECT_FALSE(contains(ended.err, "train.txt:54")) << "only the first ten are named";
}

TEST(BadData, RunawayLossNamesStepAndCheckpoint) {
  const TinyRun run;
  const Ended first = run.train({"train.lr=1e30"});
  EXPECT_EQ(first.exit_code, 1) << first.err;
  expect_parts(first.err, {"of step 2", "last checkpoint is none"});
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "final"));
  const TinyRun other;
  other.train_well({"train.steps=4"});
  const std::string hash = hash_of(other.checkpoint(4));
  const Ended later = other.train({"train.steps=9", "train.lr=1e30"});
  EXPECT_EQ(later.exit_code, 1) << later.err;
  expect_parts(later.err, {"of step 6", "step-00000004"});
  EXPECT_EQ(hash_of(other.checkpoint(4)), hash);
  // And with a sane rate it resumes from there.
  other.train_well({"train.steps=9"});
  EXPECT_EQ(metric_texts(other.dir(), "loss").size(), 9u);
}

}  // namespace
}  // namespace weft::testing
