// tests/checkpoint/match_config_test.cpp: weights below a key, and tensors that are missing.
#include "checkpoint/match_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model.h"
#include "model/stored.h"
#include "tests/io/temporary_folder.h"

namespace weft::testing {
namespace {

Json small_llama() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "hidden_act": "silu"})",
                    "config.json");
}

// A file whose tensors have `before` in front of their names, and an optimizer's beside them.
LogicalModel file_with(const std::string& before) {
  LogicalModel model;
  model.config = small_llama();
  const std::vector<ParameterSpec> parameters = make_model(model.config, {})->parameters();
  for (const FileTensor& tensor : file_tensors(parameters))
    model.weights.push_back({before + tensor.name, tensor.shape, Dtype::kF32, {}});
  if (!before.empty()) model.weights.push_back({"optimizer.state.0.exp_avg", {3}, Dtype::kF32, {}});
  std::sort(model.weights.begin(), model.weights.end(),
            [](const LogicalTensor& a, const LogicalTensor& b) { return a.name < b.name; });
  return model;
}

TEST(MatchConfig, WeightsBelowAKeyAreTheModel) {
  const LogicalModel plain = file_with("");
  for (const char* key : {"", "model.", "module.", "state_dict.", "model_state_dict."}) {
    LogicalModel model = file_with(key);
    match_config(model);
    ASSERT_EQ(model.weights.size(), plain.weights.size()) << key;
    for (size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_EQ(model.weights[i].name, plain.weights[i].name) << key;
  }
}

TEST(MatchConfig, AMissingTensorIsNamed) {
  LogicalModel model = file_with("");
  std::erase_if(model.weights,
                [](const LogicalTensor& t) { return t.name == "model.norm.weight"; });
  EXPECT_NE(error_of<UserError>([&] { match_config(model); }).find("model.norm.weight"),
            std::string::npos);
  model.weights.clear();
  EXPECT_NE(error_of<UserError>([&] { match_config(model); }).find("no tensors"),
            std::string::npos);
}

TEST(MatchConfig, AnUnknownArchitectureKeepsAll) {
  LogicalModel model = file_with("model.");
  model.config = parse_json(R"({"architectures": ["OtherModel"], "model_type": "other"})", "c");
  const size_t before = model.weights.size();
  match_config(model);
  EXPECT_EQ(model.weights.size(), before);
}

}  // namespace
}  // namespace weft::testing
