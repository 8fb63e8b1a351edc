// tests/train/evaluate_test.cpp: awkward rows, and a model whose every answer is known.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "data/batches.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/known_model.h"
#include "train/answers.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

using testing::kPadded;
using testing::write_known_model;

class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override {
    write_known_model(folder_ / "model");
    config_.name = "none";
    config_.storage = folder_.path().string();
    config_.model.path = (folder_ / "model").string();
    config_.data.train = config_.data.eval = {(folder_ / "rows.jsonl").string()};
    config_.data.tokenizer = "bytes";
    config_.data.source = "{q}";
    config_.data.target = "{a}";
    config_.data.seq_length = 12;
    config_.launch.threads = 1;
  }
  EvalReport evaluate_rows(const std::string& rows) {
    std::ofstream(folder_ / "rows.jsonl", std::ios::binary) << rows;
    return evaluate(config_, "");
  }
  void stop_at(int32_t id) {
    std::ofstream(folder_ / "model/generation_config.json") << "{\"eos_token_id\": " << id << "}";
  }
  TemporaryFolder folder_;
  RunConfig config_;
};

TEST_F(Evaluate, IdsThatTheTokenizerLacksHaveNoText) {
  const std::string rows = R"({"q": "x", "a": "yz"})";
  const EvalReport report = evaluate_rows(rows);
  EXPECT_EQ(report.rows, 1);
  EXPECT_EQ(report.exact_match, 0) << "y z ?, of which nothing ends";
  const EvalReport of_cut = evaluate_rows(R"({"q": "x", "a": "y"})");
  EXPECT_EQ(of_cut.exact_match, 0) << "y z";
}

TEST_F(Evaluate, StopsAtTheGenerationConfigsTokens) {
  stop_at(kPadded);
  EXPECT_EQ(evaluate_rows(R"({"q": "x", "a": "y"})").exact_match, 1);
  stop_at('?');
  EXPECT_EQ(evaluate_rows(R"({"q": "x", "a": "yz"})").exact_match, 1);
}

TEST_F(Evaluate, PromptsAreCutAsInTraining) {
  stop_at(kPadded);
  const std::string many(100, 'a');
  const EvalReport report =
      evaluate_rows("{\"q\": \"" + many + "x\", \"a\": \"y\"}\n" +  // loses its beginning
                    "{\"q\": \"\", \"a\": \"y\"}\n" +               // nothing to continue
                    "{\"q\": \"x\", \"a\": \"" + many + "\"}\n" +   // no space left for a prompt
                    "{\"q\": \"x\", \"a\": \"y\"}\n");
  EXPECT_EQ(report.rows, 4);
  EXPECT_EQ(report.counters.truncated, 2);
  EXPECT_EQ(report.exact_match, 0.5);
  EXPECT_EQ(evaluate_rows(R"({"q": "", "a": "y"})").exact_match, 0);
}

TEST_F(Evaluate, RepairedRowsAreCountedAndNamed) {
  const EvalReport report =
      evaluate_rows("{\"q\": \"x\", \"a\": \"y\"}\n{\"q\": \"\xff\", \"a\": \"y\"}\n");
  EXPECT_EQ(report.counters.repaired, 1);
  ASSERT_EQ(report.counters.first_repaired.size(), 1u);
  EXPECT_TRUE(report.counters.first_repaired[0].ends_with("rows.jsonl:2"));
}

// Only the rows of the evaluation part are answered correctly, then the reverse.
TEST_F(Evaluate, RowsOutsideOfThePartDoNotCount) {
  stop_at(kPadded);
  config_.data.eval.clear();
  config_.data.eval_fraction = 0.3;
  const EvalSplit split(static_cast<uint64_t>(config_.seed), 40, 0.3, false);
  for (const bool right_inside : {true, false}) {
    std::string rows;
    int64_t inside = 0;
    for (int64_t i = 0; i < 40; ++i) {
      const bool is_inside = split.contains(i);
      inside += is_inside;
      rows +=
          fmt::format("{{\"q\": \"x\", \"a\": \"{}\"}}\n", is_inside == right_inside ? "y" : "n");
    }
    ASSERT_EQ(inside, 12);
    const EvalReport report = evaluate_rows(rows);
    EXPECT_EQ(report.rows, inside);
    EXPECT_EQ(report.exact_match, right_inside ? 1 : 0);
  }
}

TEST_F(Evaluate, AnswersMayMatchAsSql) {
  stop_at(kPadded);
  const std::string rows =
      "{\"q\": \"x\", \"a\": \"y\"}\n{\"q\": \"x\", \"a\": \" Y;\"}\n"
      "{\"q\": \"x\", \"a\": \"n\"}\n{\"q\": \"x\", \"a\": \"y\"}\n";
  EXPECT_FALSE(evaluate_rows(rows).sql_match);  // not asked for
  config_.eval.match = "sql";
  const EvalReport report = evaluate_rows(rows);
  EXPECT_EQ(report.exact_match, 0.5);
  EXPECT_EQ(report.sql_match, 0.75);
  EXPECT_EQ(report.to_json().at("sql_match").as_number(), 0.75);
  EXPECT_GT(report.tokens_per_s, 0);
}

TEST_F(Evaluate, AnswersHaveALimit) {
  stop_at('?');
  const std::string rows = R"({"q": "x", "a": "yz"})";
  EXPECT_EQ(evaluate_rows(rows).exact_match, 1);
  config_.eval.max_new_tokens = 2;
  EXPECT_EQ(evaluate_rows(rows).exact_match, 0);  // y (280) alone
}

TEST_F(Evaluate, AnAnswerThatDoesNotEndIsNotTheRows) {
  stop_at(kPadded);
  const std::string rows = R"({"q": "x", "a": "y"})";
  config_.eval.max_new_tokens = 2;
  EXPECT_EQ(evaluate_rows(rows).exact_match, 1);  // y, stop
  config_.eval.max_new_tokens = 1;
  EXPECT_EQ(evaluate_rows(rows).exact_match, 0) << "y, and nobody knows what would follow";
}

// y, an id without text, and no position for what would follow.
TEST_F(Evaluate, AnAnswerThatRanOutOfPositionsIsNotTheRows) {
  config_.data.layout = "pack";
  config_.data.seq_length = 16;
  const std::string rows = "{\"q\": \"" + std::string(20, 'a') + "x\", \"a\": \"y\"}";
  EXPECT_EQ(evaluate_rows(rows).exact_match, 0);
  stop_at(kPadded);
  EXPECT_EQ(evaluate_rows(rows).exact_match, 1);
}

// The model is model.path's: it would leave the head of these weights out.
TEST_F(Evaluate, WeightsWithAnotherKindOfHeadAreRefused) {
  write_known_model(folder_ / "other");
  const std::string path = (folder_ / "model/config.json").string();
  Json tied = parse_json(read_file(path), path);
  tied.set("tie_word_embeddings", true);
  write_file_atomic(path, tied.dump());
  config_.model.init = "random";
  std::ofstream(folder_ / "rows.jsonl") << R"({"q": "x", "a": "y"})";
  const std::string e =
      error_of<UserError>([&] { evaluate(config_, (folder_ / "other").string()); });
  EXPECT_NE(e.find("has a head of another kind than model.path"), std::string::npos) << e;
}

TEST_F(Evaluate, PromptsOfPackedRowsAreCutToo) {
  stop_at(kPadded);
  config_.data.layout = "pack";
  const EvalReport report = evaluate_rows("{\"q\": \"" + std::string(100, 'a') +
                                          "x\", \"a\": \"y\"}\n{\"q\": \"x\", \"a\": \"y\"}\n");
  EXPECT_EQ(report.exact_match, 1);
}

TEST_F(Evaluate, QuestionsAreDealtOutOnce) {
  std::ofstream file(folder_ / "rows.jsonl");
  for (int i = 0; i < 7; ++i) file << "{\"q\": \"x\", \"a\": \"" << i << "\"}\n";
  file.close();
  const Session session(config_);
  const auto rows = session.open_eval_rows();
  for (const int64_t most : {0, 5, 100}) {
    for (const int num_ranks : {1, 2, 3, 9}) {
      std::multiset<std::string> answers;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const Questions q = read_questions(session, *rows, {}, {most, rank, num_ranks});
        EXPECT_EQ(q.num_rows, static_cast<int64_t>(q.answers.size()));
        answers.insert(q.answers.begin(), q.answers.end());
      }
      const std::multiset<std::string> all = {"0", "1", "2", "3", "4", "5", "6"},
                                       five = {"0", "1", "2", "3", "4"};
      EXPECT_EQ(answers, most == 5 ? five : all) << most << " on " << num_ranks;
    }
  }
}

TEST_F(Evaluate, PartWithoutRowsIsRejected) {
  config_.data.eval.clear();
  config_.data.eval_fraction = 1e-12;
  EXPECT_THROW(evaluate_rows(R"({"q": "x", "a": "y"})"), UserError);
  config_.data.eval_fraction = 0.999999;
  EXPECT_EQ(evaluate_rows(R"({"q": "x", "a": "y"})").rows, 1);
  config_.data.fraction = 0.1;  // of one row: none
  EXPECT_THROW(evaluate_rows(R"({"q": "x", "a": "y"})"), UserError);
}

}  // namespace
}  // namespace weft
