// tests/data/found_files_test.cpp: folders and patterns give the data files of one split and
// format, and report the ignored files.
#include "data/found_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "data/cache_store.h"
#include "data/line_store.h"
#include "data/rows.h"
#include "data/source_summary.h"
#include "data/splits.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

class FoundFilesTest : public ::testing::Test {
 protected:
  void write(const Names& names) {
    for (const std::string& name : names) temp_.write(name, "{\"text\":\"a\"}\n");
  }
  std::string at(const std::string& name) const { return (temp_.path() / name).string(); }

  FoundFiles find(const std::string& name, const char* what = "data.train",
                  const char* format = "auto") const {
    FoundFiles found = expand_paths({at(name)}, what, format);
    for (std::string& path : found.paths) path = path.substr(temp_.path().string().size() + 1);
    return found;
  }
  Names names(const std::string& name, const char* what = "data.train",
              const char* format = "auto") const {
    return find(name, what, format).paths;
  }

  TempFolder temp_;
};

TEST(Splits, KeywordsAreWordsOfThePath) {
  const auto split = [](const std::string& path) { return splits_of({path})[0]; };
  for (const char* name : {"train.txt", "data/train-00000-of-2.parquet", "wiki.train.txt",
                           "my_training-set.csv", "train1.jsonl", "training/a.txt"})
    EXPECT_EQ(split(name), 1u) << name;
  for (const char* name : {"dev.txt", "valid-1.csv", "x.val.jsonl", "validation/a.txt"})
    EXPECT_EQ(split(name), 2u) << name;
  for (const char* name : {"test.txt", "eval/a.txt", "testing_0.txt", "my evaluation.csv"})
    EXPECT_EQ(split(name), 4u) << name;
  for (const char* name : {"trainer.txt", "contest.txt", "latest.jsonl", "value.csv", "a.txt"})
    EXPECT_EQ(split(name), 0u) << name;
  EXPECT_EQ(split("train_val.txt"), 3u);
  EXPECT_EQ(splits_of({"train/test.txt", "b.test.txt"}), (std::vector<unsigned>{1, 0}));
}

TEST_F(FoundFilesTest, AFolderGivesTheSplitOfTheOption) {
  write({"d/train-0.jsonl", "d/train-1.jsonl", "d/test-0.jsonl", "d/validation-0.jsonl",
         "d/extra.jsonl"});
  const FoundFiles train = find("d");
  EXPECT_EQ(train.paths, (Names{"d/train-0.jsonl", "d/train-1.jsonl"}));
  EXPECT_EQ(describe_left_out(train.left_out),
            (Names{"extra.jsonl: no split in its name", "test-0.jsonl: split test",
                   "validation-0.jsonl: split validation"}));
  EXPECT_EQ(names("d", "data.eval"), Names{"d/validation-0.jsonl"});
  EXPECT_EQ(names("d/*.jsonl").size(), 5u) << "a pattern matches files of every split";
}

TEST_F(FoundFilesTest, SeveralSplitsWithoutTheWantedOneAreRefused) {
  write({"d/test.jsonl", "d/validation.jsonl", "one/test-0.jsonl", "one/test-1.jsonl",
         "mixed/test.jsonl", "mixed/a.jsonl"});
  expect_user_error([&] { find("d"); }, "none is named train: test.jsonl (split test); ");
  expect_user_error([&] { find("mixed"); }, "a.jsonl (no split in its name)");
  EXPECT_EQ(names("d", "data.eval"), Names{"d/validation.jsonl"});
  EXPECT_EQ(names("one").size(), 2u) << "the folder has only one split";
}

TEST_F(FoundFilesTest, WhatIsNotDataIsLeftOut) {
  const Names others = {
      "LICENSE.txt",       "requirements.txt", "README.md",
      "dataset_info.json", "metadata.csv",     ".ipynb_checkpoints/a-checkpoint.jsonl",
      ".cache/a.jsonl",    "a.jsonl.bak",      "a.jsonl~",
      "b.jsonl.tmp",       "__pycache__/x.txt"};
  write({"a.jsonl", "sub/b.jsonl", "license_plates.jsonl"});
  write(others);
  const Names all = {"a.jsonl", "license_plates.jsonl", "sub/b.jsonl"};
  EXPECT_EQ(names(""), all);
  EXPECT_EQ(names("*"), (Names{"a.jsonl", "license_plates.jsonl"}));
  EXPECT_EQ(names("**"), all);
  EXPECT_EQ(names("LICENSE.txt"), Names{"LICENSE.txt"})
      << "a file that is listed explicitly is read";
  expect_user_error([&] { find("LIC*"); }, "no file matches");
  const Names lines = describe_left_out(find("").left_out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(),
                       "LICENSE.txt, README.md, dataset_info.json, metadata.csv, "
                       "requirements.txt: not a data file"),
            1)
      << lines[0];
  EXPECT_EQ(open_rows({at("")}, "auto", "data.train")->left_out().size(), find("").left_out.size());
}

TEST_F(FoundFilesTest, TwoFormatsAndDoublesAreRefused) {
  write({"two/a.jsonl", "two/b.csv", "twice/t.jsonl", "twice/t.jsonl.gz"});
  for (const char* place : {"two", "two/*"})
    expect_user_error([&] { find(place); }, "several formats: b.csv (csv); a.jsonl (jsonl)");
  for (const char* place : {"twice", "twice/*"})
    expect_user_error([&] { find(place); }, "compressed and uncompressed: t.jsonl, t.jsonl.gz");
  EXPECT_EQ(names("two", "data.train", "csv"), Names{"two/b.csv"});
  EXPECT_EQ(expand_paths({at("two/a.jsonl"), at("two/b.csv")}, "data.train", "auto").paths.size(),
            2u);
}

TEST_F(FoundFilesTest, TwoStarsMatchFoldersAtAnyDepth) {
  write({"d/a.jsonl", "d/x/b.jsonl", "d/x/y/z/c.jsonl", "d/x/y/n.txt", "d/.h/e.jsonl"});
  std::filesystem::create_directory_symlink(temp_.path() / "d", temp_.path() / "d/x/loop");
  EXPECT_EQ(names("d/**/*.jsonl"), (Names{"d/a.jsonl", "d/x/b.jsonl", "d/x/y/z/c.jsonl"}));
  EXPECT_EQ(names("d/**/y/**/c.*"), Names{"d/x/y/z/c.jsonl"});
  EXPECT_EQ(names("*/x/**/c.jsonl"), Names{"d/x/y/z/c.jsonl"});
}

TEST_F(FoundFilesTest, JsonWithoutAKnownEndingIsNotText) {
  const std::string row = "{\"text\":\"" + std::string(5000, 'a') + "\"}\n";
  for (const char* name : {"part-00000", "x.jsonl.1", "x.tab"}) {
    temp_.write(name, "\n{\"text\": \"a\"}\n");
    expect_user_error([&] { open_rows({at(name)}, "auto", "data.train"); },
                      "the lines are JSON objects");
    temp_.write(name, row);
    expect_user_error([&] { open_rows({at(name)}, "auto", "data.train"); },
                      "the lines are JSON objects");
    EXPECT_EQ(open_rows({at(name)}, "jsonl", "data.train")->size(), 1);
    EXPECT_EQ(open_rows({at(name)}, "text", "data.train")->size(), 1);
    temp_.write(name, "{braces} in a text\n");
    EXPECT_EQ(open_rows({at(name)}, "auto", "data.train")->size(), 1);
  }
}

TEST_F(FoundFilesTest, ASourceIsDescribedInOneLine) {
  write({"d/train-00000-of-00002.jsonl", "d/train-00001-of-00002.jsonl"});
  const auto rows = open_rows({at("d")}, "auto", "data.train");
  EXPECT_EQ(describe_source("train", *rows, 2),
            "train 2 files, 2 rows: " + at("d") + "/train-*.jsonl");
  EXPECT_EQ(describe_source("train", *rows, 1),
            "train 2 files, 2 rows, the first 1 of them used: " + at("d") + "/train-*.jsonl");
  const Json json = source_to_json(*rows, 1);
  EXPECT_EQ(json.at("files").as_int(), 2);
  EXPECT_EQ(json.at("rows").as_int(), 2);
  EXPECT_EQ(json.at("rows_used").as_int(), 1);
  EXPECT_EQ(json.at("bytes").as_int(), 26);
  EXPECT_EQ(json.at("names").as_array()[1].as_string(), at("d/train-00001-of-00002.jsonl"));
  EXPECT_EQ(common_pattern({"a/x.txt"}), "a/x.txt");
  EXPECT_EQ(common_pattern({"a/x.txt", "b/y.txt"}), "*.txt");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
}

// A second process does not scan the text; of processes started together only one does.
TEST_F(FoundFilesTest, ALineIndexIsStoredAndShared) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "row " + std::to_string(i) + "\n";
  temp_.write("t.txt", text);
  ::setenv("WEFT_CACHE", at("cache").c_str(), 1);
  std::atomic<int> num_scans{0};
  const auto marks = [&] {
    return marks_of_file(
        file_info(at("t.txt")), RowFormat::kText,
        [&] {
          ++num_scans;
          return LineIndex::scan(text, RowFormat::kText, 0, [](uint64_t, uint64_t) {});
        },
        1);
  };
  std::vector<std::thread> ranks;
  for (int i = 0; i < 4; ++i) {
    ranks.emplace_back([&] {
      const LineIndex index(text, RowFormat::kText, marks());
      EXPECT_EQ(index.size(), 5000);
      EXPECT_EQ(index.line(4321), "row 4321\n");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(num_scans, 1);
  const auto caches = list_caches(at("cache"));
  ASSERT_EQ(caches.size(), 1u);
  EXPECT_EQ(caches[0].num_rows, 5000);
  // Damage is detected, and so are changed lines of the same length.
  const auto stored = caches[0].folder / "index";
  std::string bytes = read_file(stored);
  bytes[60] = static_cast<char>(~bytes[60]);
  std::ofstream(stored, std::ios::binary) << bytes;
  EXPECT_EQ(LineIndex(text, RowFormat::kText, marks()).line(4321), "row 4321\n");
  EXPECT_EQ(num_scans, 2);
  const auto time = std::filesystem::last_write_time(at("t.txt"));
  temp_.write("t.txt", std::string(text.size(), '\n'));
  std::filesystem::last_write_time(at("t.txt"), time);
  static_cast<void>(marks());
  EXPECT_EQ(num_scans, 3);
  EXPECT_EQ(remove_cache(caches[0].folder), Removal::kDone);
  EXPECT_FALSE(std::filesystem::exists(caches[0].folder));
  ::unsetenv("WEFT_CACHE");
}

}  // namespace
}  // namespace weft
