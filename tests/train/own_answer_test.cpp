// tests/train/own_answer_test.cpp: rows whose own label would not be counted as a match.
#include "train/own_answer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/io/temporary_folder.h"
#include "train/answers.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

constexpr int32_t kEnd = 256;  // of the bytes tokenizer
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
constexpr const char* kT5 = R"({"architectures": ["T5ForConditionalGeneration"],
  "model_type": "t5", "is_encoder_decoder": true, "d_model": 32, "d_kv": 8, "d_ff": 48,
  "num_layers": 1, "num_heads": 4, "vocab_size": 300, "relative_attention_num_buckets": 8,
  "pad_token_id": 0, "decoder_start_token_id": 0})";

class OwnAnswer : public ::testing::Test {
 protected:
  OwnAnswer() {
    config_.storage = folder_.path().string();
    config_.name = "none";
    config_.model.path = folder_.path().string();
    config_.model.init = "random";
    config_.data.train = config_.data.eval = {(folder_ / "rows.jsonl").string()};
    config_.data.tokenizer = "bytes";
    config_.data.source = "{q}";
    config_.data.target = "{a}";
    config_.data.seq_length = 24;
  }
  Unmatchable look_at(const std::vector<std::string>& answers, const char* model = kLlama) {
    std::ofstream(folder_ / "config.json") << model;
    std::ofstream rows(folder_ / "rows.jsonl");
    for (const std::string& a : answers) rows << R"({"q": "why", "a": ")" << a << "\"}\n";
    rows.close();
    const Session session(config_);
    return read_questions(session, *session.open_eval_rows(), {kEnd}).unmatchable;
  }
  static void expect_in(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  TemporaryFolder folder_;
  RunConfig config_;
};

TEST_F(OwnAnswer, RowsThatAreGivenBackAreNotCounted) {
  for (const char* model : {kLlama, kT5}) {
    const Unmatchable none = look_at({"yes", "", "two  blanks", "because <b>", "für"}, model);
    EXPECT_EQ(none.count, 0) << none.text;
    EXPECT_EQ(none.text, "");
  }
}

// The text of a special token is no text of an answer; the tokenizer of T5 has no '<' at all.
TEST_F(OwnAnswer, TextThatTheTokenizerDoesNotGiveBack) {
  const std::string end = "<|endoftext|>", words(100, 'w');
  const Unmatchable bad = look_at({"yes", words + end + "no", end}, kT5);
  EXPECT_EQ(bad.count, 2);
  EXPECT_EQ(bad.first, 1);
  expect_in(bad.text, {"rows.jsonl:2, whose label is decoded as ...\"www", ", and data.target is",
                       "w<|endoftext|>no\": the tokenizer does not give the text back"});
}

TEST_F(OwnAnswer, TargetsThatAreCut) {
  config_.data.target_length = 4;
  const Unmatchable pair = look_at({"abc", "abcd"}, kT5);
  EXPECT_EQ(pair.count, 1);
  expect_in(pair.text,
            {R"(rows.jsonl:2, whose label is decoded as "abc", and data.target is "abcd")",
             "raise data.target_length"});
  const Unmatchable causal = look_at({std::string(23, 'a'), std::string(24, 'a')});
  EXPECT_EQ(causal.count, 1);
  expect_in(causal.text, {"rows.jsonl:2", "raise data.seq_length"});
}

TEST_F(OwnAnswer, LabelsWithoutAnEnd) {
  config_.data.append_eos = "false";
  const Unmatchable bad = look_at({"yes", "no"});
  EXPECT_EQ(bad.count, 2);
  expect_in(bad.text, {"rows.jsonl:1, whose label ends with no token that ends an answer: set "
                       "data.append_eos to true"});
}

// What eval.match takes as the same is no difference.
TEST_F(OwnAnswer, TheRuleIsThatOfTheMeasure) {
  config_.data.target_length = 9;  // without the semicolon
  EXPECT_EQ(look_at({"select a;"}, kT5).count, 1);
  config_.eval.match = "sql";
  EXPECT_EQ(look_at({"select a;"}, kT5).count, 0);
  EXPECT_EQ(look_at({"select ab"}, kT5).count, 1);
}

}  // namespace
}  // namespace weft
