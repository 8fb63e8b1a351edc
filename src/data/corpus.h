// data/corpus.h: the quickstart's corpus: questions about tables, and the SQL that answers them.
//
// A small grammar draws questions of eight kinds over 12 tables and 16 columns. Each table keeps
// four columns for the test: a (table, column) pair of a test question never occurs in a training
// question, though every word of it does. So a model that answers has learned to read the question,
// not a list of answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct SqlPair {
  std::string question;
  std::string sql;
};

struct SqlCorpus {
  std::vector<SqlPair> train;  // may repeat a question, as people do
  std::vector<SqlPair> test;   // each once, none in train
};

// The same pairs for the same seed on every machine. Question, line end, SQL and end of sequence
// have at most kSqlPairBytes bytes.
constexpr int64_t kSqlPairBytes = 96;
SqlCorpus make_sql_corpus(uint64_t seed, int64_t num_train, int64_t num_test);

// train.jsonl and test.jsonl in `folder` (made where absent, or a URI): {"question": ..., "sql":
// ...}.
void write_sql_corpus(const std::string& folder, uint64_t seed, int64_t num_train,
                      int64_t num_test);

}  // namespace weft
