// tests/train/evaluate_test.cpp: rows that are awkward, and a model whose every answer is known.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

constexpr int64_t kHidden = 32, kVocab = 300;
constexpr int32_t kPadded = 280;  // of the model, not of the bytes tokenizer

// Its layers add nothing, so the next token follows from the last alone: x y (280) z ?, and ?
// behind all others.
void write_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    "hidden_act": "silu"})";
  const std::map<int32_t, int32_t> next = {{'x', 'y'}, {'y', kPadded}, {kPadded, 'z'}};
  std::vector<float> embedding(kVocab * kHidden), head(kVocab * kHidden);
  for (int32_t id = 0; id < kVocab; ++id) embedding[static_cast<size_t>(id * kHidden + 3)] = 1;
  head[static_cast<size_t>('?' * kHidden + 3)] = 1;
  int32_t dim = 4;
  for (const auto& [from, to] : next) {
    embedding[static_cast<size_t>(from * kHidden + 3)] = 0;
    embedding[static_cast<size_t>(from * kHidden + dim)] = 1;
    head[static_cast<size_t>(to * kHidden + dim++)] = 1;
  }
  const std::vector<float> zeros(48 * kHidden), ones(kHidden, 1.0f);
  std::vector<TensorToWrite> tensors = {
      {"model.embed_tokens.weight", Dtype::kF32, {kVocab, kHidden}, embedding.data()},
      {"lm_head.weight", Dtype::kF32, {kVocab, kHidden}, head.data()},
      {"model.norm.weight", Dtype::kF32, {kHidden}, ones.data()}};
  const std::map<std::string, Shape> layer = {
      {"self_attn.q_proj", {32, 32}},    {"self_attn.k_proj", {16, 32}},
      {"self_attn.v_proj", {16, 32}},    {"self_attn.o_proj", {32, 32}},
      {"mlp.gate_proj", {48, 32}},       {"mlp.up_proj", {48, 32}},
      {"mlp.down_proj", {32, 48}},       {"input_layernorm", {32}},
      {"post_attention_layernorm", {32}}};
  for (const auto& [name, shape] : layer) {
    const auto& values = shape.size() == 1 ? ones : zeros;
    tensors.push_back({"model.layers.0." + name + ".weight", Dtype::kF32, shape, values.data()});
  }
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override {
    write_model(folder_ / "model");
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

TEST_F(Evaluate, StopsWhereGenerationConfigSays) {
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
                    "{\"q\": \"\", \"a\": \"y\"}\n" +               // nothing to go on from
                    "{\"q\": \"x\", \"a\": \"" + many + "\"}\n" +   // no room left for a prompt
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

TEST_F(Evaluate, PartWithoutRowsIsRefused) {
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
