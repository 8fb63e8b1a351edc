// tests/data/sources_test.cpp: packed text, Parquet and Arrow files (tools/make_data_fixtures.py)
// return the rows that were written.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "data/rows.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

constexpr int64_t kFileRows = 1000;
const std::string kFolder = "tests/data/data/";

std::unique_ptr<RowSource> open(const std::string& name, const std::vector<std::string>& columns) {
  return open_rows({kFolder + name}, "auto", "data.train", columns);
}

std::string text_of_row(int64_t i) {
  std::string text = "row " + std::to_string(i) + " ";
  for (int64_t k = 0; k < i % 5; ++k) text += "\xC3\xA9";
  return i % 7 == 3 ? "" : text;
}

void expect_row(const Row& row, int64_t i, const std::string& name) {
  ASSERT_NE(row.find("text"), nullptr) << name;
  ASSERT_EQ(row.find("text")->text, text_of_row(i)) << name << " row " << i;
  ASSERT_EQ(row.find("text")->kind == Row::Kind::kNull, i % 7 == 3) << name << " row " << i;
  ASSERT_EQ(row.find("id")->text, std::to_string(i)) << name;
  ASSERT_FALSE(row.repaired);
}

const char* const kFiles[] = {"rows.parquet", "rows.arrow", "stream.arrow", "rows.jsonl.gz",
                              "rows.jsonl.zst"};

TEST(Sources, EveryRowInOrder) {
  for (const char* name : kFiles) {
    const auto rows = open(name, {"text", "id"});
    ASSERT_EQ(rows->size(), kFileRows) << name;
    const auto scan = rows->scan(0);
    Row row;
    for (int64_t i = 0; i < kFileRows; ++i) {
      ASSERT_TRUE(scan->next(row)) << name;
      expect_row(row, i, name);
    }
    EXPECT_FALSE(scan->next(row)) << name;
    ASSERT_EQ(rows->files().size(), 1u);
    EXPECT_EQ(rows->files()[0].size,
              static_cast<int64_t>(std::filesystem::file_size(kFolder + name)));
  }
}

// Arrow has no plain text for these types: values must not be dumps, raw bytes or bare numbers.
TEST(Sources, EveryTypeHasAText) {
  const auto rows = open("types.arrow", {});
  const auto cell = [&](int64_t i, const char* name) {
    Row row;
    rows->read(i, row);
    const Row::Column* column = row.find(name);
    return column->kind == Row::Kind::kNull ? "null" : column->text;
  };
  EXPECT_EQ(cell(0, "view"), R"(["a", "b"])");
  EXPECT_EQ(cell(1, "view"), "null");
  EXPECT_EQ(cell(2, "view"), "[]");
  EXPECT_EQ(cell(1, "runs"), "x");
  EXPECT_EQ(cell(2, "runs"), "null");
  EXPECT_EQ(cell(2, "uuid"), "00000000-0000-0002-0000-000000000002");
  EXPECT_EQ(cell(0, "wait"), "5ms");
  EXPECT_EQ(cell(1, "zone"), "2023-11-14 22:13:20Z");
  EXPECT_EQ(cell(1, "bare"), "2023-11-14 22:13:20");
  EXPECT_EQ(cell(0, "large"), "18446744073709551615");
  EXPECT_EQ(cell(0, "larges"), "[18446744073709551615]");
  EXPECT_EQ(cell(1, "larges"), "[1]");
  expect_user_error(
      [] {
        Row row;
        open("period.arrow", {"when"})->read(0, row);
      },
      "period.arrow: column 'when' has the type pandas.period");
}

// The limit holds in text, compressed text and tables.
TEST(Sources, ALongRowIsRefused) {
  const TempFolder folder;
  folder.write("t.jsonl", "{\"a\":1}\n{\"a\":\"" + std::string(100, 'x') + "\"}\n");
  const auto read_all = [](const std::string& path, size_t most) {
    const auto rows = open_rows({path}, "auto", "data.train", {}, most);
    const auto scan = rows->scan(0);
    Row row;
    int64_t count = 0;
    while (scan->next(row)) ++count;
    return count;
  };
  const std::string text = (folder.path() / "t.jsonl").string();
  EXPECT_EQ(read_all(text, 200), 2);
  expect_user_error([&] { read_all(text, 100); },
                    "t.jsonl:2: the row is longer than 100 bytes (data.max_row_bytes)");
  expect_user_error([&] { read_all(kFolder + "rows.jsonl.gz", 20); },
                    "rows.jsonl.gz:1: the row is longer than 20 bytes");
  expect_user_error([&] { read_all(kFolder + "rows.parquet", 20); },
                    "rows.parquet: row 1: the row is longer than 20 bytes");
}

TEST(Sources, ScansBeginAnywhereAndRowsAreReadAlone) {
  for (const char* name : kFiles) {
    const auto rows = open(name, {"text", "id"});
    Row row;
    for (const int64_t first : {0, 1, 255, 256, 299, 300, 301, 600, 799, 800, 999}) {
      const auto scan = rows->scan(first);
      ASSERT_TRUE(scan->next(row));
      expect_row(row, first, name);
      ASSERT_GT(rows->extent_end(first), first) << name;
      ASSERT_LE(rows->extent_end(first), kFileRows) << name;
      rows->read(kFileRows - 1 - first, row);
      expect_row(row, kFileRows - 1 - first, name);
    }
    EXPECT_FALSE(rows->scan(kFileRows)->next(row)) << name;
  }
}

TEST(Sources, RowGroupsAndBatchesAreExtents) {
  EXPECT_EQ(open("rows.parquet", {"id"})->extent_end(299), 300);
  EXPECT_EQ(open("rows.parquet", {"id"})->extent_end(300), 600);
  EXPECT_EQ(open("rows.parquet", {"id"})->extent_begin(599), 300);
  EXPECT_EQ(open("rows.arrow", {"id"})->extent_end(300), 512);
  EXPECT_EQ(open("stream.arrow", {"id"})->extent_end(900), 1000);
}

TEST(Sources, CellsOfATable) {
  for (const char* name : {"rows.parquet", "rows.arrow", "stream.arrow"}) {
    const auto rows = open(name, {});
    EXPECT_EQ(rows->column_names(),
              (std::vector<std::string>{"text", "id", "score", "flag", "label", "messages"}));
    Row row;
    rows->read(4, row);
    ASSERT_EQ(row.columns.size(), 6u);
    EXPECT_EQ(row.find("score")->text, "1.0");
    EXPECT_EQ(row.find("flag")->text, "true");
    EXPECT_EQ(row.find("label")->text, "middle");
    EXPECT_EQ(row.find("messages")->kind, Row::Kind::kNested);
    const Json messages = parse_json(row.find("messages")->text, name);
    ASSERT_EQ(messages.as_array().size(), 2u);
    EXPECT_EQ(messages.as_array()[1].at("role").as_string(), "assistant");
    EXPECT_EQ(messages.as_array()[1].at("content").as_string(), "a4");
    rows->read(5, row);
    EXPECT_EQ(row.find("score")->text, "1.25");
    EXPECT_EQ(row.find("flag")->text, "false");
  }
}

TEST(Sources, OnlyTheUsedColumnsAreRead) {
  const auto rows = open("rows.parquet", {"label"});
  Row row;
  rows->read(0, row);
  EXPECT_EQ(row.names(), std::vector<std::string>{"label"});
  expect_user_error([] { open("rows.parquet", {"body"}); },
                    "no column 'body'; there are: text, id, score, flag, label, messages");
}

TEST(Sources, SeveralThreadsScanOneSource) {
  const auto rows = open("rows.parquet", {"text", "id"});
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      Row row;
      for (int64_t i = static_cast<int64_t>(t); i < kFileRows; i += 50) {
        rows->scan(i)->next(row);
        good[t] += row.find("id")->text == std::to_string(i);
        rows->read(i, row);
        good[t] += row.find("id")->text == std::to_string(i);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const int g : good) EXPECT_EQ(g, 40);
}

TEST(Sources, SeveralKindsAreOneDataSet) {
  const auto rows = open_rows({kFolder + "rows.parquet", kFolder + "rows.jsonl.gz"}, "auto",
                              "data.train", {"text", "id"});
  ASSERT_EQ(rows->size(), 2 * kFileRows);
  const auto scan = rows->scan(990);
  Row row;
  for (int64_t i = 990; i < 1010; ++i) {
    ASSERT_TRUE(scan->next(row));
    expect_row(row, i % kFileRows, "both");
  }
  EXPECT_EQ(rows->extent_end(950), 1000);
  EXPECT_EQ(rows->extent_end(1000), 2000);
  EXPECT_EQ(rows->extent_begin(950), 900);
  EXPECT_EQ(rows->files().size(), 2u);
}

void read_all(const std::string& path) {
  const auto rows = open_rows({path}, "auto", "data.train");
  const auto scan = rows->scan(0);
  Row row;
  while (scan->next(row)) {
  }
}

TEST(Sources, DamagedFilesAreNamed) {
  for (const char* name : {"cut.parquet", "flipped.parquet", "cut.jsonl.gz", "cut.jsonl.zst"}) {
    expect_user_error([&] { read_all(kFolder + name); }, name);
  }
  const TempFolder folder;
  folder.write("t.parquet", "PAR1");
  folder.write("empty.parquet", "");
  folder.write("t.arrow", "ARROW1\0\0");
  folder.write("t.jsonl.gz", "no gzip");
  folder.write("t.jsonl.zst", "no zstd");
  for (const char* name : {"t.parquet", "empty.parquet", "t.arrow", "t.jsonl.gz", "t.jsonl.zst"}) {
    expect_user_error([&] { read_all((folder.path() / name).string()); }, name);
  }
}

// Every byte of the file changed in turn, some at a time: rows or an error, never a crash.
TEST(Sources, DamagedArrowFilesNeverCrash) {
  const TempFolder folder;
  const std::string path = (folder.path() / "t.arrow").string();
  for (const char* name : {"rows.arrow", "stream.arrow"}) {
    const std::string whole = read_file(kFolder + name);
    int refused = 0;
    for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 150) {
      std::string bad = whole;
      for (size_t i = at; i < std::min(at + 4, bad.size()); ++i)
        bad[i] = static_cast<char>(~bad[i]);
      folder.write("t.arrow", bad);
      try {
        read_all(path);
      } catch (const UserError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 5) << name;
  }
}

TEST(Sources, SavedDataSetIsItsArrowFiles) {
  const TempFolder folder;
  folder.write("dataset_info.json", "{}");
  folder.write("state.json",
               R"({"_data_files":[{"filename":"data-0.arrow"}],"_indices_files":null})");
  folder.write("data-0.arrow", read_file(kFolder + "stream.arrow"));
  const std::string root = folder.path().string();
  EXPECT_EQ(open_rows({root}, "auto", "data.train", {"text"})->size(), kFileRows);
  folder.write("dataset_dict.json", R"({"splits":["test"]})");
  expect_user_error([&] { open_rows({root}, "auto", "data.train"); }, "several splits");
}

TEST(Sources, HuggingFaceCacheNames) {
  const TempFolder folder;
  const std::string commit = "0123456789abcdef";
  folder.write("datasets--Org--Set/refs/main", commit);
  folder.write("datasets--Org--Set/snapshots/" + commit + "/data/a.txt", "one\ntwo\n");
  folder.write("datasets--old/snapshots/v1/b.jsonl", "{\"text\":\"x\"}\n");
  ::setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  const auto size = [](const std::string& name) {
    return open_rows({"hf://datasets/" + name}, "auto", "data.train")->size();
  };
  EXPECT_EQ(size("Org/Set/data/a.txt"), 2);
  EXPECT_EQ(size("Org/Set/data/*.txt"), 2);
  EXPECT_EQ(size("Org/Set/data"), 2);
  EXPECT_EQ(size("Org/Set@" + commit + "/data/a.txt"), 2);
  EXPECT_EQ(size("old@v1/b.jsonl"), 1);
  try {
    size("Org/Absent/data/a.txt");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.hint(), "fetch it: hf download --repo-type dataset Org/Absent data/a.txt");
  }
  const auto hint = [&](const std::string& name) {
    try {
      size(name);
    } catch (const UserError& e) {
      return e.hint();
    }
    return std::string("no error");
  };
  const std::string fetch = "fetch it: hf download --repo-type dataset ";
  EXPECT_EQ(hint("Org/Absent"), fetch + "Org/Absent");
  EXPECT_EQ(hint("Org/Absent/data"), fetch + "Org/Absent --include 'data/*'");
  EXPECT_EQ(hint("Org/Absent@v2/data/*.csv"),
            fetch + "Org/Absent --revision v2 --include 'data/*.csv'");
  EXPECT_EQ(hint("wikitext/raw/train.parquet"), fetch + "wikitext raw/train.parquet");
  EXPECT_EQ(hint("wikitext@v1/raw/train.parquet"),
            fetch + "wikitext --revision v1 raw/train.parquet");
  EXPECT_EQ(hint("plain/rows.jsonl"), fetch + "plain rows.jsonl");
  EXPECT_EQ(hint("Set/data/a.txt"), fetch + "Set/data a.txt");
  EXPECT_EQ(hint("Set/a.txt"), "the cache has Org/Set: use hf://datasets/Org/Set/a.txt");
  EXPECT_EQ(size("Org/Set"), 2) << "the whole data set";
  expect_user_error([&] { size("Org/Set/data/none.txt"); }, "none.txt");
  expect_user_error([&] { size("Org/Set/../../x"); }, "..");
  ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace weft
