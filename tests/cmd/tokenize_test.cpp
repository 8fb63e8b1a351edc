// tests/cmd/tokenize_test.cpp: text to ids and back from every input.
#include <gtest/gtest.h>

#include "tests/cmd/run_weft.h"

namespace weft {
namespace {

using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;

TEST(TokenizeCommand, IdsOfEverySource) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text") << "ab\n";
  EXPECT_EQ(run_weft("tokenize bytes --text=ab --ids").out, "97 98\n");
  EXPECT_EQ(run_weft("tokenize bytes --text=-a --ids").out, "45 97\n");
  EXPECT_EQ(run_weft("tokenize bytes --text= --ids").out, "\n");
  EXPECT_EQ(run_weft("tokenize bytes --ids --file " + (folder / "text").string()).out,
            "97 98 10\n");
  EXPECT_EQ(run_weft("tokenize bytes --ids", "ab").out, "97 98\n");
}

TEST(TokenizeCommand, DecodesFromEverySource) {
  const TemporaryFolder folder;
  std::ofstream(folder / "ids") << "97\n98  10\t99";
  EXPECT_EQ(run_weft("tokenize bytes --decode --text='97 98 256'").out, "ab<|endoftext|>\n");
  EXPECT_EQ(run_weft("tokenize bytes --decode --file " + (folder / "ids").string()).out, "ab\nc\n");
  EXPECT_EQ(run_weft("tokenize bytes --decode", "97 98\n").out, "ab\n");
}

TEST(TokenizeCommand, LinesOfJson) {
  const TemporaryFolder folder;
  const std::string rows = (folder / "rows").string(), ids = (folder / "ids").string();
  std::ofstream(rows) << "\"a\\nb\"\n\"\"\n\"\u00e9\"\n";
  const Ended there = run_weft("tokenize bytes --jsonl " + rows);
  EXPECT_EQ(there.out, "97 10 98\n\n195 169\n");
  std::ofstream(ids) << there.out;
  EXPECT_EQ(run_weft("tokenize bytes --decode --jsonl " + ids).out,
            "\"a\\nb\"\n\"\"\n\"\u00e9\"\n");
  std::ofstream(rows) << "\"a\"\n[1]\n";
  const Ended bad = run_weft("tokenize bytes --jsonl " + rows);
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("line 2 holds array, wanted a string"), std::string::npos) << bad.err;
}

TEST(TokenizeCommand, TableShowsBytes) {
  const Ended got = run_weft("tokenize bytes --text='a\u00e9<|endoftext|>'");
  EXPECT_NE(got.out.find("97  \"a\"\n"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("195  bytes c3\n"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("256  \"<|endoftext|>\"  special\n"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("4 tokens\n"), std::string::npos) << got.out;
}

TEST(TokenizeCommand, BadUtf8IsRepairedWithAWarning) {
  const Ended got = run_weft("tokenize bytes --ids", "a\xff");
  EXPECT_EQ(got.exit_code, 0);
  EXPECT_EQ(got.out, "97 239 191 189\n");
  EXPECT_NE(got.err.find("standard input is not all UTF-8"), std::string::npos) << got.err;
}

// There is no run file here, so the hint names an argument.
TEST(TokenizeCommand, AFolderWithoutTokenizerHasAHint) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << "{}";
  const Ended got = run_weft("tokenize '" + folder.path().string() + "' --text=a");
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_NE(got.err.find("has no tokenizer"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("weft tokenize bytes"), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("data.tokenizer"), std::string::npos) << got.err;
}

TEST(TokenizeCommand, WrongInputIsRefused) {
  for (const char* words :
       {"tokenize bytes --decode --text=x", "tokenize bytes --decode --text=257",
        "tokenize bytes --decode --text=99999999999", "tokenize bytes --text=a --file=b",
        "tokenize bytes --ids --decode --text=1", "tokenize no/such/folder --text=a", "tokenize"}) {
    const Ended got = run_weft(words);
    EXPECT_EQ(got.exit_code, 2) << words << "\n" << got.err;
    EXPECT_EQ(got.out, "") << words;
  }
}

}  // namespace
}  // namespace weft
