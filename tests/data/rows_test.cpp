// tests/data/rows_test.cpp: text and JSON-lines rows, good and hostile.
#include "data/rows.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "data/line_index.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

std::string text_of(const RowSource& rows, int64_t i, const char* column = "text") {
  Row row;
  rows.read(i, row);
  const Row::Column* found = row.find(column);
  return found ? found->text : "(none)";
}

TEST(Rows, TextFileHasOneRowPerLine) {
  const auto rows = rows_in_memory("one\r\n\ntwo \nlast", RowFormat::kText, "t");
  ASSERT_EQ(rows->size(), 4);
  EXPECT_EQ(text_of(*rows, 0), "one");
  EXPECT_EQ(text_of(*rows, 1), "");
  EXPECT_EQ(text_of(*rows, 2), "two ");
  EXPECT_EQ(text_of(*rows, 3), "last");
  EXPECT_EQ(rows->where(3), "t:4");
}

TEST(Rows, LineIndexFindsEveryLineOfALongText) {
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 5000; ++i) {
    lines.push_back(std::string(static_cast<size_t>((i * 7919) % 101), 'a') + std::to_string(i));
    if (i == 2500) lines.back() += std::string(100000, 'x');
    text += lines.back() + "\n";
  }
  const LineIndex index(text, RowFormat::kText);
  ASSERT_EQ(index.size(), 5000);
  for (int64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(index.line(i), lines[static_cast<size_t>(i)] + "\n");
    if (i % 997 == 0) {
      EXPECT_EQ(index.line_number(index.offset(i)), i + 1);
    }
  }
}

TEST(Rows, LineIndexOfShortLines) {
  std::string text = "\n\n";
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + (i % 3 == 0 ? "\n \n" : "\n");
  const LineIndex index(text, RowFormat::kJsonLines);
  ASSERT_EQ(index.size(), 1000);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(index.line(i), std::to_string(i) + "\n");
  EXPECT_THROW(index.line(1000), BugError);
  EXPECT_THROW(index.line(-1), BugError);
  EXPECT_THROW(LineIndex("", RowFormat::kText).line(0), BugError);
}

TEST(Rows, JsonLinesColumnsBecomeText) {
  const auto rows = rows_in_memory(
      "{\"a\":\"x\\ny\",\"n\":3,\"f\":1.0,\"g\":0.25,\"b\":true,\"z\":null,\"l\":[1],"
      "\"i\":18446744073709551616,\"j\":-9223372036854775809}\n\n  \n"
      "{\"a\":\"second\"}",
      RowFormat::kJsonLines, "t");
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ(text_of(*rows, 0, "a"), "x\ny");
  EXPECT_EQ(text_of(*rows, 0, "n"), "3");
  EXPECT_EQ(text_of(*rows, 0, "f"), "1.0");
  EXPECT_EQ(text_of(*rows, 0, "g"), "0.25");
  EXPECT_EQ(text_of(*rows, 0, "i"), "18446744073709551616");
  EXPECT_EQ(text_of(*rows, 0, "j"), "-9223372036854775809");
  EXPECT_EQ(text_of(*rows, 0, "b"), "true");
  EXPECT_EQ(text_of(*rows, 0, "z"), "");
  Row row;
  rows->read(0, row);
  EXPECT_EQ(row.find("l")->kind, Row::Kind::kNested);
  rows->read(1, row);
  EXPECT_EQ(row.columns.size(), 1u);
  EXPECT_EQ(rows->where(1), "t:4");
}

TEST(Rows, NonObjectLinesAreNamed) {
  const auto rows = rows_in_memory("{}\n[1]\n{\"a\":\n", RowFormat::kJsonLines, "d.jsonl");
  Row row;
  rows->read(0, row);
  expect_user_error([&] { rows->read(1, row); }, "d.jsonl:2");
  expect_user_error([&] { rows->read(2, row); }, "d.jsonl:3");
}

TEST(Rows, InvalidUtf8IsReplacedAndReported) {
  const auto rows = rows_in_memory("a\xff\nok\n", RowFormat::kText, "t");
  Row row;
  rows->read(0, row);
  EXPECT_TRUE(row.repaired);
  EXPECT_EQ(row.columns[0].text, "a\xEF\xBF\xBD");
  rows->read(1, row);
  EXPECT_FALSE(row.repaired);
  const auto json = rows_in_memory("{\"a\":\"b\xc3\"}", RowFormat::kJsonLines, "t");
  EXPECT_EQ(text_of(*json, 0, "a"), "b\xEF\xBF\xBD");
}

TEST(Rows, FilesGlobsAndFoldersAreOneDataSet) {
  const TempFolder folder;
  folder.write("b.txt", "three\n");
  folder.write("a.txt", "one\ntwo\n");
  folder.write("empty.txt", "");
  folder.write("sub/c.txt", "four\n");
  folder.write("README.md", "no data\n");
  const std::string root = folder.path().string();
  const auto globbed = open_rows({root + "/*.txt"}, "auto", "data.train");
  ASSERT_EQ(globbed->size(), 3);
  EXPECT_EQ(text_of(*globbed, 2), "three");
  EXPECT_TRUE(globbed->where(1).ends_with("a.txt:2"));
  const auto all = open_rows({root}, "auto", "data.train");
  ASSERT_EQ(all->size(), 4);
  EXPECT_EQ(text_of(*all, 3), "four");
  const auto listed = open_rows({root + "/b.txt", root + "/a.txt"}, "auto", "data.train");
  EXPECT_EQ(text_of(*listed, 0), "three");
}

TEST(Rows, ByteOrderMarkIsNotPartOfTheFirstName) {
  const auto rows = rows_in_memory("\xEF\xBB\xBFtext\none\n", RowFormat::kCsv, "t.csv");
  EXPECT_EQ(text_of(*rows, 0), "one");
  const auto json = rows_in_memory("\xEF\xBB\xBF{\"text\":\"two\"}", RowFormat::kJsonLines, "t");
  EXPECT_EQ(text_of(*json, 0), "two");
}

// Pages of mapped files that this process holds.
int64_t mapped_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kb = 0;
    if (word == "RssFile:" && status >> kb) return kb;
  }
  return -1;
}

TEST(Rows, PassedTextUsesNoMemory) {
  const TempFolder folder;
  constexpr int64_t kLines = 40000;
  std::string text;
  for (int64_t i = 0; i < kLines; ++i) text += std::string(999, 'a') + '\n';
  folder.write("a.txt", text);
  const int64_t before = mapped_kb();
  const auto rows = open_rows({(folder.path() / "a.txt").string()}, "auto", "data.train");
  ASSERT_GE(before, 0);
  EXPECT_LT(mapped_kb() - before, 8000) << "by the index";
  const auto scan = rows->scan(0);
  Row row;
  int64_t count = 0;
  while (scan->next(row)) ++count;
  EXPECT_EQ(count, kLines);
  EXPECT_LT(mapped_kb() - before, 8000) << "by the scan";
}

TEST(Rows, AJsonArrayIsRefusedWithTheCommandThatMakesLines) {
  for (const char* text : {"[{\"text\": \"a\"}]\n", "[\n  {\n    \"text\": \"a\"\n  }\n]\n"}) {
    const auto rows = rows_in_memory(text, RowFormat::kJsonLines, "alpaca.json");
    Row row;
    try {
      rows->read(0, row);
      FAIL();
    } catch (const UserError& e) {
      EXPECT_STREQ(e.what(), "alpaca.json: the file is a JSON array, wanted one object per line");
      EXPECT_EQ(e.hint(), "convert the file: jq -c '.[]' alpaca.json > rows.jsonl");
    }
  }
  const auto later = rows_in_memory("{}\n[1]\n", RowFormat::kJsonLines, "t");
  Row row;
  expect_user_error([&] { later->read(1, row); }, "t:2: wanted a JSON object");
}

TEST(Rows, BlankFieldsOfATsvAreCounted) {
  const std::string text = "a\tb\n1\t2\n\t\n\n \t \n3\t4\n";
  const auto rows = rows_in_memory(text, RowFormat::kTsv, "t.tsv");
  EXPECT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->num_blank(), 2) << "an empty line is none of them";
  EXPECT_EQ(rows_in_memory("a,b\n,\n", RowFormat::kCsv, "t.csv")->size(), 1);
  const TempFolder folder;
  folder.write("t.tsv", text);
  const std::string path = (folder.path() / "t.tsv").string();
  EXPECT_EQ(open_rows({path, path}, "auto", "data.train")->num_blank(), 4);
  EXPECT_EQ(open_stream_rows(path, RowFormat::kTsv, kMaxRowBytes)->num_blank(), 2);
}

TEST(Rows, LinesThatEndInCarriageReturnsAreRefused) {
  const TempFolder folder;
  folder.write("cr.txt", "one\rtwo\r");
  const std::string path = (folder.path() / "cr.txt").string();
  for (const RowFormat format : {RowFormat::kText, RowFormat::kCsv, RowFormat::kJsonLines}) {
    expect_user_error([&] { open_line_rows(path, format, kMaxRowBytes); }, "carriage returns only");
    expect_user_error([&] { open_stream_rows(path, format, kMaxRowBytes); },
                      "carriage returns only");
  }
  EXPECT_EQ(rows_in_memory("one\r\ntwo\r\n", RowFormat::kText, "t")->size(), 2);
  EXPECT_EQ(rows_in_memory("one\rtwo\n", RowFormat::kText, "t")->size(), 1);
}

TEST(Rows, AFifoIsRefusedAtOnce) {
  const TempFolder folder;
  for (const char* name : {"t.txt", "t.jsonl.gz", "t.parquet", "t"}) {
    const std::string path = (folder.path() / name).string();
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_user_error([&] { open_rows({path}, "auto", "data.train"); }, "a FIFO");
  }
  expect_user_error([&] { open_rows({"/dev/null"}, "auto", "data.train"); }, "a device");
}

TEST(Rows, BadPathsAreRefused) {
  const TempFolder folder;
  folder.write("empty.txt", "");
  folder.write("t.xz", "?");
  folder.write("sub/README.md", "");
  const std::string root = folder.path().string();
  expect_user_error([&] { open_rows({root + "/none.txt"}, "auto", "data.train"); }, "none.txt");
  expect_user_error([&] { open_rows({root + "/*.json"}, "auto", "data.train"); }, "*.json");
  expect_user_error([&] { open_rows({root + "/empty.txt"}, "auto", "data.train"); }, "no rows");
  expect_user_error([&] { open_rows({root + "/t.xz"}, "auto", "data.train"); }, "not built");
  expect_user_error([&] { open_rows({root + "/sub"}, "auto", "data.train"); }, "no .txt");
  expect_user_error([&] { open_rows({root + "/empty.txt"}, "idx", "data.train"); }, "not built");
}

}  // namespace
}  // namespace weft
