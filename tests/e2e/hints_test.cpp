// tests/e2e/hints_test.cpp: mistakes that users make first: the message names what is missing, the
// hint what to do.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

void expect_refused(const std::vector<std::string>& words, const std::vector<std::string>& parts) {
  const Ended ended = run_to_end(words);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(ended.out, "");
  expect_parts(ended.err, parts);
}

TEST(Hints, AMissingFileHintsAtASimilarName) {
  const TinyRun run;
  expect_refused({"inspect", (run / "trian.txt").string()},
                 {"there is no folder or file", "did you mean \"train.txt\"?", "hint: wanted"});
  expect_refused({"inspect", (run / "nodir/a.jsonl").string()},
                 {"there is no folder or file", "nodir is not a folder", "hint: check the path"});
  expect_refused({"inspect", "NoSuch"}, {"Hugging Face cache", "hf download NoSuch"});
}

TEST(Hints, AFolderWithoutWeightsNamesWhatIsMissing) {
  const TinyRun run;
  const std::string model = (run / "model").string();
  const std::vector<std::string> parts = {model + " has config.json but no weights",
                                          "model.safetensors.index.json", "hf download",
                                          "`weft train` with model.init: random", "final/"};
  expect_refused({"hash", model}, parts);
  expect_refused({"generate", model, "--prompt", "a"}, parts);
  const std::string eval = "data.eval=[" + (run / "eval.txt").string() + "]";
  expect_refused(run.words("eval", {eval}, {"--model", model}), parts);
  expect_refused(run.words("train", {"model.init=pretrained"}),
                 {"has config.json but no weights", "set model.init: random"});
}

TEST(Hints, LimitsOfAConfigurationNameItsFile) {
  const TinyRun run;
  run.change_config("vocab_size", Json(2'000'000'000));
  const std::string named = (run / "model/config.json").string() + ": \"vocab_size\" must be";
  for (const char* command : {"train", "plan"}) expect_refused(run.words(command, {}), {named});
  const Ended seen = run_to_end({"inspect", (run / "model").string()});
  expect_parts(seen.out, {"cannot_train: " + named});
}

// Files of several kinds under one run file: the first row may be right.
TEST(Hints, RowsOfAnotherKindHintAtTheirKey) {
  const TinyRun run;
  std::string text, chat;
  for (int i = 0; i < 8; ++i) {
    text += "{\"text\": \"some words\"}\n";
    chat += "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n";
  }
  run.write("a.jsonl", text + chat);
  run.write("b.jsonl", text);
  const auto over = [&](const char* file, std::vector<std::string> sets = {}) {
    sets.insert(sets.end(), {"data.train=[" + (run / file).string() + "]", "data.shuffle=false"});
    return run.words("train", sets);
  };
  expect_refused(over("a.jsonl"), {"a.jsonl:9", "no column 'text'; there are: messages",
                                   "hint: chat rows: set data.messages: messages"});
  expect_refused(over("b.jsonl", {"data.messages=messages"}),
                 {"b.jsonl:1", "no column 'messages'", "for plain text leave it unset",
                  "data.text: \"{text}\""});
}

TEST(Hints, TheFolderForThePictureMustExist) {
  const TinyRun run;
  const std::string out = (run / "nodir/x.svg").string();
  expect_refused(run.words("plan", {}, {"--dump", "--out", out}),
                 {"--out " + out + ": there is no folder", "mkdir -p"});
}

}  // namespace
}  // namespace weft::testing
