// tests/data/corpus_test.cpp: the quickstart's corpus keeps what it promises about its test part.
#include "data/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/rows.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

const std::set<std::string> kTableNames = {"users", "items", "books", "films", "songs",  "cars",
                                           "teams", "vans",  "pets",  "games", "hotels", "lakes"};
const std::set<std::string> kColumnNames = {"age",   "cost", "depth", "fuel", "gain",  "level",
                                            "price", "rank", "size",  "year", "brand", "color",
                                            "kind",  "name", "owner", "town"};

std::vector<std::string> words_of(const std::string& question) {
  std::istringstream in(question);
  return {std::istream_iterator<std::string>(in), {}};
}

// The (table, column) pairs of a question, found by parsing it, not from the grammar.
std::set<std::string> pairs_of(const std::string& question) {
  const auto words = words_of(question);
  const auto table = std::find_if(words.begin(), words.end(),
                                  [](const auto& w) { return kTableNames.contains(w); });
  std::set<std::string> out;
  for (const std::string& w : words) {
    if (table != words.end() && kColumnNames.contains(w)) out.insert(*table + "." + w);
  }
  return out;
}

TEST(Corpus, TestQuestionsAndTheirPairsAreUnseen) {
  const SqlCorpus corpus = make_sql_corpus(42, 5600, 600);
  ASSERT_EQ(corpus.train.size(), 5600u);
  ASSERT_EQ(corpus.test.size(), 600u);
  std::set<std::string> questions, pairs, words;
  for (const SqlPair& p : corpus.train) {
    questions.insert(p.question);
    pairs.merge(pairs_of(p.question));
    for (const std::string& w : words_of(p.question)) words.insert(w);
  }
  EXPECT_GT(questions.size(), 4000u);
  std::set<std::string> test_questions;
  for (const SqlPair& p : corpus.test) {
    EXPECT_TRUE(test_questions.insert(p.question).second);
    EXPECT_FALSE(questions.contains(p.question)) << p.question;
    EXPECT_FALSE(pairs_of(p.question).empty()) << p.question;
    for (const std::string& pair : pairs_of(p.question)) EXPECT_FALSE(pairs.contains(pair)) << pair;
    for (const std::string& w : words_of(p.question)) EXPECT_TRUE(words.contains(w)) << w;
  }
}

TEST(Corpus, PairsFitAndSqlNamesWhatTheQuestionNames) {
  const SqlCorpus corpus = make_sql_corpus(7, 3000, 600);
  std::set<std::string> beginnings;
  for (const auto* part : {&corpus.train, &corpus.test}) {
    for (const SqlPair& p : *part) {
      EXPECT_LE(static_cast<int64_t>(p.question.size() + p.sql.size() + 2), kSqlPairBytes);
      EXPECT_TRUE(p.sql.starts_with("select ")) << p.sql;
      beginnings.insert(p.sql.substr(0, 10));
      for (const std::string& w : words_of(p.question)) {
        const bool is_name = kTableNames.contains(w) || kColumnNames.contains(w) ||
                             w.find_first_of("0123456789") != std::string::npos;
        if (is_name) {
          EXPECT_NE(p.sql.find(w), std::string::npos) << p.question << " | " << p.sql;
        }
      }
    }
  }
  for (const char* some : {"select cou", "select max", "select min", "select avg", "select * f"}) {
    EXPECT_TRUE(beginnings.contains(some)) << some;
  }
}

TEST(Corpus, DependsOnTheSeed) {
  const auto a = make_sql_corpus(1, 50, 20), b = make_sql_corpus(1, 50, 20),
             c = make_sql_corpus(2, 50, 20);
  auto same = [](const SqlCorpus& x, const SqlCorpus& y) {
    return std::equal(x.train.begin(), x.train.end(), y.train.begin(),
                      [](const SqlPair& p, const SqlPair& q) { return p.question == q.question; });
  };
  EXPECT_TRUE(same(a, b));
  EXPECT_FALSE(same(a, c));
  expect_user_error([] { make_sql_corpus(1, 10, 1000000); }, "1000000");
}

// Measurements on a corpus of a seed refer to exactly these rows.
TEST(Corpus, IsTheSameOnEveryMachine) {
  std::string text;
  for (const SqlPair& p : make_sql_corpus(42, 500, 60).train)
    text += p.question + "\n" + p.sql + "\n";
  EXPECT_EQ(hash_hex(hash_text(text)), "2ad46738943638ed");
}

TEST(Corpus, FilesAreJsonLines) {
  const TempFolder folder;
  write_sql_corpus((folder.path() / "new").string(), 3, 40, 10);
  const auto rows = open_rows({(folder.path() / "new/train.jsonl").string()}, "auto", "data.train");
  EXPECT_EQ(rows->size(), 40);
  Row row;
  rows->read(0, row);
  EXPECT_EQ(row.names(), (std::vector<std::string>{"question", "sql"}));
  const auto test = open_rows({(folder.path() / "new/test.jsonl").string()}, "auto", "data.eval");
  EXPECT_EQ(test->size(), 10);
}

TEST(Corpus, ReplacesNoOtherRows) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  write_sql_corpus(path, 3, 40, 10);
  write_sql_corpus(path, 3, 40, 10);  // the same again
  const std::string before = read_file(folder.path() / "train.jsonl");
  EXPECT_THROW(write_sql_corpus(path, 4, 40, 10), UserError);
  write_file_atomic(folder.path() / "test.jsonl", "mine\n");
  EXPECT_THROW(write_sql_corpus(path, 3, 40, 10), UserError);
  EXPECT_EQ(read_file(folder.path() / "train.jsonl"), before);
  EXPECT_EQ(read_file(folder.path() / "test.jsonl"), "mine\n");
}

}  // namespace
}  // namespace weft
