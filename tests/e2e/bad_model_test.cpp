// tests/e2e/bad_model_test.cpp: broken or inconsistent model folders: exit 2 and a name.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

// A trained folder, read with init: pretrained, whose files the tests then damage.
class BadModel : public ::testing::Test {
 protected:
  BadModel() {
    run_.train_well({"name=made", "train.steps=0"});
    std::filesystem::copy(run_.dir("made") / "final", folder());
    std::filesystem::remove_all(run_ / "runs");
  }
  std::filesystem::path folder() const { return run_ / "source"; }
  std::filesystem::path weights() const { return folder() / "model.safetensors"; }

  Ended train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> sets = {"model.init=pretrained", "model.path=" + folder().string()};
    sets.insert(sets.end(), more.begin(), more.end());
    return run_.train(sets);
  }
  void expect_refused(const std::vector<std::string>& parts,
                      const std::vector<std::string>& more = {}) const {
    const Ended ended = train(more);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
    EXPECT_FALSE(std::filesystem::exists(run_ / "runs")) << "something was written";
  }
  void change(const std::string& key, Json value) const {
    Json config = parse_json(slurp(folder() / "config.json"), "config.json");
    config.set(key, std::move(value));
    run_.write("source/config.json", config.dump());
  }
  TinyRun run_;
};

TEST_F(BadModel, TheUndamagedFolderTrains) { EXPECT_EQ(train().exit_code, 0); }

TEST_F(BadModel, MissingFolderConfigAndWeights) {
  const Ended ended =
      run_.train({"model.init=pretrained", "model.path=" + (run_ / "nowhere").string()});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"nowhere"});
  std::filesystem::remove(weights());
  expect_refused({"source", "safetensors"});
  std::filesystem::remove(folder() / "config.json");
  expect_refused({"source", "config.json"});
}

TEST_F(BadModel, TruncatedWeights) {
  const std::string bytes = slurp(weights());
  for (size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{100}, size_t{4}, size_t{0}}) {
    run_.write("source/model.safetensors", bytes.substr(0, size));
    expect_refused({"model.safetensors"});
  }
}

TEST_F(BadModel, AnotherShapeOrMissingTensor) {
  change("intermediate_size", 64);
  expect_refused({"model.layers.0.mlp.gate_proj.weight", "(48, 32)", "(64, 32)"});
  change("intermediate_size", 48);
  change("num_hidden_layers", 3);
  expect_refused({"model.layers.2.", "no tensor"});
  change("num_hidden_layers", 2);
  change("tie_word_embeddings", false);
  expect_refused({"lm_head.weight", "tie_word_embeddings"});
}

TEST_F(BadModel, UnknownDtypeOfATensor) {
  std::string bytes = slurp(weights());
  for (size_t at = bytes.find("\"F32\""); at != std::string::npos; at = bytes.find("\"F32\"", at)) {
    bytes.replace(at, 5, "\"F33\"");
  }
  run_.write("source/model.safetensors", bytes);
  expect_refused({"model.safetensors", "F33"});
}

TEST_F(BadModel, UnknownArchitectureNamesTheKnownOnes) {
  change("architectures", Json(Json::Array{Json("MambaForCausalLM")}));
  expect_refused({"MambaForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM"});
}

TEST_F(BadModel, UnbuiltFeaturesOfTheConfigAreRejected) {
  change("use_sliding_window", true);
  expect_refused({"use_sliding_window"});
  change("use_sliding_window", false);
  change("hidden_act", "gelu");
  expect_refused({"hidden_act", "gelu"});
  change("hidden_act", "silu");
  for (const Json& rate : {Json(1.0), Json(-0.1), Json(1.5)}) {
    change("attention_dropout", rate);
    expect_refused({"attention_dropout", "below 1", "model.dropout"});
  }
  change("attention_dropout", "much");
  expect_refused({"attention_dropout", "number"});
  expect_refused({"model.dropout"}, {"model.dropout=1"});
  change("attention_dropout", 1.0);
  EXPECT_EQ(train({"model.dropout=0.0", "train.steps=1"}).exit_code, 0);
}

TEST_F(BadModel, BadNumbersInTheConfig) {
  change("num_attention_heads", 5);
  expect_refused({"num_attention_heads", "hidden_size"});
  change("num_attention_heads", 4);
  change("num_key_value_heads", 3);
  expect_refused({"num_key_value_heads"});
  change("num_key_value_heads", "two");
  expect_refused({"num_key_value_heads"});
  run_.write("source/config.json", "{\"hidden_size\": ");
  expect_refused({"config.json"});
}

// Values that would produce NaN or garbage are rejected by name before anything is written.
TEST_F(BadModel, UntrainableConfigsAreRejected) {
  const std::pair<const char*, Json> cases[] = {
      {"rms_norm_eps", Json(-1.0)},
      {"rope_theta", Json(0)},
      {"initializer_range", Json(-0.02)},
      {"quantization_config", parse_json(R"({"quant_method": "awq"})", "quantization")},
      {"eos_token_id", Json("<eos>")}};
  const std::string config = slurp(folder() / "config.json");
  for (const auto& [key, value] : cases) {
    change(key, value);
    expect_refused({"config.json: ", key});
    run_.write("source/config.json", config);
  }
}

TEST_F(BadModel, LimitsOfTheModel) {
  expect_refused({"data.seq_length is 65", "64 positions"}, {"data.seq_length=65"});
  expect_refused({"model.num_layers is 3", "2 layers"}, {"model.num_layers=3"});
  expect_refused({"model.freeze", "nothing.*"}, {"model.freeze=[nothing.*]"});
  expect_refused({"model.freeze"}, {"model.freeze=[\"*\"]"});
}

TEST_F(BadModel, NonFiniteWeightsEndTheRunWithTheStep) {
  std::string bytes = slurp(weights());
  const uint32_t nan = 0x7fc00000;
  bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&nan), 4);
  run_.write("source/model.safetensors", bytes);
  const Ended ended = train();
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"step 1", "the last checkpoint is none", "no update was made yet",
                           "1. the weights of", "source", "rms_norm_eps"});
}

// Still valid JSON: one letter of a tensor's name in the header of model.safetensors.
TEST(ChangedHeader, ATensorOfAnotherNameIsNamed) {
  const TinyRun run;
  run.train_well({"train.steps=1"});
  const std::string file = "runs/tiny/final/model.safetensors";
  std::string bytes = slurp(run / file);
  const size_t at = bytes.find("\"model.norm.weight\"");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 9] = 'f';
  run.write(file, bytes);
  const std::string final = (run.dir() / "final").string();
  const std::vector<std::string> parts = {
      "warning: " + final + " has a tensor that config.json does not define", "model.nofm.weight",
      "has no tensor \"model.norm.weight\""};
  for (const auto& words :
       {std::vector<std::string>{"generate", final, "--prompt", "a", "--tokenizer", "bytes"},
        run.words("train", {"name=next", "model.init=pretrained", "model.path=" + final}),
        run.words("eval", {"data.eval=[" + (run / "eval.txt").string() + "]"},
                  {"--model", final})}) {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 2) << words[0] << ended.err;
    expect_parts(ended.err, parts);
  }
}

}  // namespace
}  // namespace weft::testing
