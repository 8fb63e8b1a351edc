// tests/data/csv_test.cpp: quotes, line ends, and rows that do not fit their header.
#include "data/csv.h"

#include <gtest/gtest.h>

#include "data/example.h"
#include "data/rows.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

std::string cell(const RowSource& rows, int64_t i, const char* column) {
  Row row;
  rows.read(i, row);
  const Row::Column* found = row.find(column);
  return found ? found->text : "(none)";
}

// For rows without a column text.
std::string hint_of(const std::string& bytes, RowFormat format, const char* name) {
  const auto rows = rows_in_memory(bytes, format, name);
  const auto tokenizer = make_bytes_tokenizer();
  Row row;
  rows->read(0, row);
  Example example;
  try {
    ExampleMaker(DataConfig(), *tokenizer, 257).make(*rows, 0, row, example);
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("there is no column 'text'; there are: "),
              std::string::npos);
    return e.hint();
  }
  ADD_FAILURE() << "there is no column text";
  return "";
}

TEST(Csv, QuotesHoldSeparatorsLineEndsAndQuotes) {
  const auto rows = rows_in_memory(
      "a,b\r\n1,plain\r\n2,\"x, y\"\r\n\"3\",\"line\nend \"\"said\"\"\"\n\n4,in\"side\n5,",
      RowFormat::kCsv, "t.csv");
  ASSERT_EQ(rows->size(), 5);
  EXPECT_EQ(cell(*rows, 0, "b"), "plain");
  EXPECT_EQ(cell(*rows, 1, "b"), "x, y");
  EXPECT_EQ(cell(*rows, 2, "a"), "3");
  EXPECT_EQ(cell(*rows, 2, "b"), "line\nend \"said\"");
  EXPECT_EQ(cell(*rows, 3, "b"), "in\"side");
  EXPECT_EQ(cell(*rows, 4, "b"), "");
  EXPECT_EQ(rows->where(3), "t.csv:7");
  EXPECT_EQ(rows->column_names(), (std::vector<std::string>{"a", "b"}));
}

// Bytes after the text are not read: a quote there has no effect.
TEST(Csv, ARecordEndsWithTheText) {
  const std::string_view longer = "a,\"b";
  const CsvEnd end = csv_record_end(longer.substr(0, 2), 0, ',');
  EXPECT_EQ(end.at, 2u);
  EXPECT_FALSE(end.is_whole);
  EXPECT_EQ(end.open_quote, std::string_view::npos);
  EXPECT_EQ(csv_record_end(longer, 0, ',').open_quote, 2u);
}

TEST(Csv, TabsAreTheOtherSeparator) {
  const auto rows = rows_in_memory("a\tb,c\n1\t2,3\n", RowFormat::kTsv, "t.tsv");
  EXPECT_EQ(cell(*rows, 0, "b,c"), "2,3");
}

TEST(Csv, BadRowsAreNamedByLine) {
  const auto rows =
      rows_in_memory("a,b\n\"1\n2\",x\n1\n1,2,3\n\"1\"z,2\n", RowFormat::kCsv, "t.csv");
  Row row;
  ASSERT_EQ(rows->size(), 4);
  rows->read(0, row);
  expect_user_error([&] { rows->read(1, row); },
                    "t.csv:4: 1 fields, but there are 2 columns (a, b)");
  expect_user_error([&] { rows->read(2, row); }, "t.csv:5: 3 fields");
  expect_user_error([&] { rows->read(3, row); }, "t.csv:6: text after a closing quote");
  expect_user_error([] { rows_in_memory("a,a\n1,2\n", RowFormat::kCsv, "t.csv"); },
                    "duplicate column");
}

// Rows after the quote would be lost silently where a run does not get that far.
TEST(Csv, AnUnclosedQuoteIsLocatedWhenTheFileIsOpened) {
  const auto expect = [](const std::string& bytes, const std::string& told) {
    expect_user_error([&] { rows_in_memory(bytes, RowFormat::kCsv, "t.csv"); }, told);
  };
  const std::string good = "a,b\n1,\"x\ny\"\n";
  expect(good + "2,\"never closed\n3,z\n", "t.csv:4: an opening quote is never closed");
  // Later on in a record than its first line.
  expect(good + "\"2\n2\",\"never\n3,z", "t.csv:5: an opening quote");
  expect(good + "2,\"doubled \"\"", "t.csv:4: an opening quote");
  expect("a,\"b\n1,2\n", "t.csv:1: an opening quote");
  EXPECT_EQ(rows_in_memory(good + "2,5\" disk\n3,\"z\"", RowFormat::kCsv, "t.csv")->size(), 3);
  TempFolder folder;
  folder.write("t.csv", good + "2,\"never closed\n3,z\n");
  expect_user_error([&] { open_rows({(folder.path() / "t.csv").string()}, "auto", "data.train"); },
                    "t.csv:4: an opening quote");
  for (const char* packed : {"open_quote.csv.gz", "open_quote.csv.zst"}) {
    expect_user_error([&] { open_rows({std::string("tests/data/data/") + packed}, "auto", "x"); },
                      std::string(packed) + ":4: an opening quote");
  }
}

TEST(Csv, SemicolonsAreRejectedAndAMissingHeaderIsReported) {
  expect_user_error([] { rows_in_memory("text;label\ngood;1\n", RowFormat::kCsv, "t.csv"); },
                    "t.csv:1: the columns (text;label) are separated by ';', wanted ','");
  expect_user_error([] { rows_in_memory("text\tlabel\ngood\t1\n", RowFormat::kCsv, "t.csv"); },
                    "t.csv:1: the columns (text label) are separated by tabs, wanted ','");
  const auto one = rows_in_memory("text\na; b\n", RowFormat::kCsv, "t.csv");
  EXPECT_EQ(cell(*one, 0, "text"), "a; b");
  EXPECT_NE(hint_of("good film,1\nbad film,0\n", RowFormat::kCsv, "t.csv")
                .find("the first line names the columns"),
            std::string::npos);
  EXPECT_EQ(hint_of("{\"body\": \"a\"}\n", RowFormat::kJsonLines, "t.jsonl").find("CSV"),
            std::string::npos);
}

TEST(Csv, AHeaderOnlyFileHasNoRows) {
  EXPECT_EQ(rows_in_memory("a,b\n", RowFormat::kCsv, "t")->size(), 0);
  EXPECT_EQ(rows_in_memory("", RowFormat::kCsv, "t")->size(), 0);
}

TEST(Csv, ColumnsAreUnique) {
  for (const char* header : {"a,b,a", "a,a,b", "b,a,a"}) {
    expect_user_error(
        [&] { rows_in_memory(std::string(header) + "\n1,2,3\n", RowFormat::kCsv, "t"); },
        "duplicate column 'a'");
  }
  EXPECT_EQ(rows_in_memory("a,b,c\n1,2,3\n", RowFormat::kCsv, "t")->size(), 1);
}

}  // namespace
}  // namespace weft
