// tests/model/decoders_test.cpp: config.json of Mistral, Qwen2 with a window, Qwen3, GPT-2 and
// Gemma 3: fields, defaults of transformers, published sizes, and what is not built.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "model/gemma3_text/config.h"
#include "model/gpt2/config.h"
#include "model/mistral/config.h"
#include "model/qwen2/config.h"
#include "model/qwen3/config.h"
#include "model/stored.h"
#include "tests/io/temporary_folder.h"
#include "tests/tiny_decoders.h"

namespace weft {
namespace {

using testing::error_of;
using testing::tiny_decoder;
using Windows = std::vector<int64_t>;
using Keys = std::vector<std::pair<const char*, Json>>;

Json with(const char* config, const Keys& keys) {
  Json made = tiny_decoder(config);
  for (const auto& [key, value] : keys) made.set(key, value);
  return made;
}

Json without(const char* config, const std::vector<std::string>& keys) {
  Json made = tiny_decoder(config);
  std::erase_if(made.as_object(), [&](const auto& entry) {
    return std::find(keys.begin(), keys.end(), entry.first) != keys.end();
  });
  return made;
}

Json json(const char* text) { return parse_json(text, "test"); }

void expect_refused(const Json& config, const std::vector<std::string>& parts) {
  const std::string e = error_of<UserError>([&] { make_model(config, {}); });
  EXPECT_TRUE(e.starts_with("config.json: ")) << e;
  for (const std::string& part : parts) EXPECT_NE(e.find(part), std::string::npos) << e;
}

TEST(DecoderConfigs, HaveTheirPublishedSizes) {
  const Json qwen3 = json(R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
      "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "tie_word_embeddings": true, "use_sliding_window": false, "sliding_window": null,
      "max_window_layers": 28, "attention_bias": false})");
  const Json mistral = json(R"({"architectures": ["MistralForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "vocab_size": 32000, "sliding_window": 4096, "tie_word_embeddings": false})");
  const Json gpt2 = json(R"({"architectures": ["GPT2LMHeadModel"], "activation_function":
      "gelu_new", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
      "vocab_size": 50257, "summary_type": "cls_index"})");
  const Json gemma = json(R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 1152,
      "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
      "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_theta": 1000000,
      "rope_local_base_freq": 10000, "rope_scaling": null, "attn_logit_softcapping": null,
      "final_logit_softcapping": null, "hidden_activation": "gelu_pytorch_tanh"})");
  EXPECT_EQ(count_parameters(*make_model(qwen3, {})), 596'049'920);
  EXPECT_EQ(count_parameters(*make_model(mistral, {})), 7'241'732'096);
  EXPECT_EQ(count_parameters(*make_model(gpt2, {})), 124'439'808);
  EXPECT_EQ(count_parameters(*make_model(gemma, {})), 999'885'952);
}

TEST(DecoderConfigs, AreFoundByTheirModelType) {
  for (const testing::TinyDecoder& family : testing::tiny_decoders()) {
    const Json config = without(family.config, {"architectures"});
    EXPECT_EQ(make_model(config, {})->family(), config.at("model_type").as_string());
  }
}

TEST(MistralConfig, OneWindowForAllLayers) {
  using testing::kTinyMistral;
  const auto windows = [](const Json& config) { return read_mistral_config(config).windows; };
  EXPECT_EQ(windows(tiny_decoder(kTinyMistral)), (Windows{5, 5}));
  EXPECT_EQ(windows(without(kTinyMistral, {"sliding_window"})), (Windows{4096, 4096}));
  EXPECT_EQ(windows(with(kTinyMistral, {{"sliding_window", Json()}})), (Windows{0, 0}));
  EXPECT_EQ(windows(with(kTinyMistral,
                         {{"layer_types", json(R"(["sliding_attention", "sliding_attention"])")}})),
            (Windows{5, 5}));
  expect_refused(with(kTinyMistral, {{"sliding_window", 0}}), {"sliding_window"});
  expect_refused(
      with(kTinyMistral, {{"layer_types", json(R"(["sliding_attention", "full_attention"])")}}),
      {"layer_types"});
  const DecoderConfig c =
      read_mistral_config(without(kTinyMistral, {"head_dim", "max_position_embeddings"}));
  EXPECT_EQ(c.head_dim, 8);  // hidden_size / heads
  EXPECT_EQ(c.max_position_embeddings, 131072);
}

TEST(MistralConfig, DefaultsOfAbsentFields) {
  const DecoderConfig c = read_mistral_config(
      json(R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
               "num_attention_heads": 16, "vocab_size": 100})"));
  EXPECT_EQ(c.num_key_value_heads, 8);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_FALSE(c.qkv_bias || c.o_bias || c.mlp_bias || c.tie_word_embeddings || c.qk_norm);
}

// transformers 5.22: layers from max_window_layers on, only with use_sliding_window; layer_types
// overrides the rule.
TEST(Qwen2Config, WindowsOfLaterLayers) {
  using testing::kTinyQwen2Window;
  const auto windows = [](const Json& config) { return read_qwen2_config(config).windows; };
  EXPECT_EQ(windows(tiny_decoder(kTinyQwen2Window)), (Windows{0, 5}));
  EXPECT_EQ(windows(with(kTinyQwen2Window, {{"max_window_layers", 0}})), (Windows{5, 5}));
  EXPECT_EQ(windows(with(kTinyQwen2Window, {{"max_window_layers", 70}})), (Windows{0, 0}));
  EXPECT_EQ(windows(without(kTinyQwen2Window, {"max_window_layers"})), (Windows{0, 0}));
  EXPECT_EQ(windows(with(kTinyQwen2Window, {{"use_sliding_window", false}})), (Windows{0, 0}));
  EXPECT_EQ(windows(with(kTinyQwen2Window, {{"sliding_window", Json()}})), (Windows{0, 0}));
  const Json first = json(R"(["sliding_attention", "full_attention"])");
  EXPECT_EQ(windows(with(kTinyQwen2Window, {{"layer_types", first}})), (Windows{5, 0}));
  expect_refused(with(kTinyQwen2Window, {{"layer_types", first}, {"use_sliding_window", false}}),
                 {"layer_types", "sliding_attention", "no window"});
  expect_refused(with(kTinyQwen2Window, {{"layer_types", json(R"(["full_attention"])")}}),
                 {"layer_types", "2"});
  expect_refused(
      with(kTinyQwen2Window, {{"layer_types", json(R"(["full_attention", "chunked_attention"])")}}),
      {"layer_types", "chunked_attention"});
  expect_refused(with(kTinyQwen2Window, {{"max_window_layers", -1}}), {"max_window_layers"});
}

TEST(Qwen3Config, HeadsAreNormedAndHaveTheirOwnWidth) {
  using testing::kTinyQwen3;
  DecoderConfig c = read_qwen3_config(tiny_decoder(kTinyQwen3));
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.qkv_bias || c.o_bias);
  EXPECT_EQ(c.head_dim, 12);
  c = read_qwen3_config(with(kTinyQwen3, {{"attention_bias", true},
                                          {"use_sliding_window", true},
                                          {"sliding_window", 7},
                                          {"max_window_layers", 1}}));
  EXPECT_TRUE(c.qkv_bias && c.o_bias);
  EXPECT_EQ(c.windows, (Windows{0, 7}));
  EXPECT_EQ(read_qwen3_config(without(kTinyQwen3, {"head_dim"})).head_dim, 128);
  expect_refused(without(kTinyQwen3, {"num_key_value_heads"}), {"num_key_value_heads 32"});
  expect_refused(with(kTinyQwen3, {{"rope_scaling", json(R"({"type": "yarn", "factor": 4.0})")}}),
                 {"yarn"});
  expect_refused(with(kTinyQwen3, {{"hidden_act", "gelu"}}), {"hidden_act"});
}

TEST(Gpt2Config, FieldsAndDefaults) {
  using testing::kTinyGpt2;
  const auto read = [](const Json& config) { return read_gpt2_config(config, {}); };
  Gpt2Config c = read(tiny_decoder(kTinyGpt2));
  EXPECT_EQ(c.n_inner, 128);
  EXPECT_TRUE(c.tie_word_embeddings && c.scale_attn_weights);
  EXPECT_FALSE(c.has_exact_gelu);
  EXPECT_EQ(c.attn_pdrop, 0.2);
  c = read(without(kTinyGpt2, {"embd_pdrop", "attn_pdrop", "resid_pdrop"}));
  EXPECT_EQ(std::vector({c.embd_pdrop, c.attn_pdrop, c.resid_pdrop}), std::vector(3, 0.1));
  // Under the names of other families, as transformers accepts them.
  Json other = without(kTinyGpt2, {"n_embd", "n_head", "n_layer", "n_positions"});
  other.set("hidden_size", 48);
  other.set("num_attention_heads", 3);
  other.set("num_hidden_layers", 1);
  other.set("max_position_embeddings", 20);
  other.set("n_inner", 50);
  c = read(other);
  EXPECT_EQ(std::vector({c.n_embd, c.n_head, c.n_layer, c.n_positions, c.n_inner}),
            (std::vector<int64_t>{48, 3, 1, 20, 50}));
  EXPECT_TRUE(read(with(kTinyGpt2, {{"activation_function", "gelu"}})).has_exact_gelu);
  EXPECT_EQ(make_model(tiny_decoder(kTinyGpt2), {0, 0.0})->dropout(), 0);
  EXPECT_EQ(make_model(tiny_decoder(kTinyGpt2), {})->dropout(), 0.2);
}

TEST(Gpt2Config, UnbuiltFeaturesAreNamed) {
  using testing::kTinyGpt2;
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    expect_refused(with(kTinyGpt2, {{key, true}}), {key, "not built"});
    EXPECT_NO_THROW(make_model(with(kTinyGpt2, {{key, false}}), {}));
  }
  expect_refused(with(kTinyGpt2, {{"activation_function", "relu"}}),
                 {"activation_function", "relu"});
  expect_refused(with(kTinyGpt2, {{"n_head", 5}}), {"n_head 5", "n_embd 32"});
  expect_refused(with(kTinyGpt2, {{"attn_pdrop", 1.0}}), {"attn_pdrop"});
  expect_refused(with(kTinyGpt2, {{"n_positions", 0}}), {"n_positions"});
  expect_refused(with(kTinyGpt2, {{"n_embd", 1 << 20}, {"n_head", 1 << 16}, {"n_layer", 1024}}),
                 {"n_embd 1048576", "parameters"});
}

// Residual projections start smaller; q, k and v are columns of one stored tensor.
TEST(Gpt2Parameters, StartAndAreStoredAsTransformersDoes) {
  const auto model = make_model(tiny_decoder(testing::kTinyGpt2), {});
  const std::vector<ParameterSpec> all = model->parameters();
  std::map<std::string, ParameterSpec> named;
  for (const ParameterSpec& p : all) named[p.name] = p;
  EXPECT_DOUBLE_EQ(named.at("transformer.h.0.mlp.c_fc.weight").init.std, 0.1);
  EXPECT_DOUBLE_EQ(named.at("transformer.h.0.mlp.c_proj.weight").init.std, 0.1 / 2);
  EXPECT_DOUBLE_EQ(named.at("transformer.h.1.attn.c_proj.weight").init.std, 0.1 / 2);
  EXPECT_EQ(named.at("transformer.h.0.attn.c_attn.v.bias").init.kind, InitRule::Kind::kZeros);
  EXPECT_EQ(named.at("transformer.ln_f.weight").init.kind, InitRule::Kind::kOnes);
  const StoredAs v = stored_as(named.at("transformer.h.0.attn.c_attn.v.weight"));
  EXPECT_EQ(v.name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(v.shape, (Shape{32, 96}));
  EXPECT_EQ(v.begin, (Shape{0, 64}));
  std::map<std::string, Shape> files;
  for (const FileTensor& tensor : file_tensors(all)) files[tensor.name] = tensor.shape;
  EXPECT_EQ(files.size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(files.at("transformer.h.1.attn.c_attn.bias"), (Shape{96}));
  EXPECT_EQ(files.at("transformer.h.1.mlp.c_fc.weight"), (Shape{32, 128}));
  EXPECT_EQ(files.at("transformer.wpe.weight"), (Shape{64, 32}));
  EXPECT_EQ(files.count("lm_head.weight"), 0u);
}

TEST(Positions, TheHintNamesTheFamilysKey) {
  const std::string gpt2 =
      make_model(tiny_decoder(testing::kTinyGpt2), {})->way_to_more_positions();
  EXPECT_NE(gpt2.find("n_positions"), std::string::npos) << gpt2;
  EXPECT_NE(gpt2.find("model.init: random"), std::string::npos) << gpt2;
  const std::string qwen3 =
      make_model(tiny_decoder(testing::kTinyQwen3), {})->way_to_more_positions();
  EXPECT_NE(qwen3.find("max_position_embeddings"), std::string::npos) << qwen3;
}

TEST(Gpt2Inputs, PositionsAreAlwaysRead) {
  const auto gpt2 = make_model(tiny_decoder(testing::kTinyGpt2), {});
  const auto mistral = make_model(tiny_decoder(testing::kTinyMistral), {});
  EXPECT_TRUE(reads_input(*gpt2, "positions"));
  EXPECT_FALSE(reads_input(*mistral, "positions"));
  EXPECT_TRUE(reads_input(*mistral, "lengths"));
}

TEST(Gemma3Config, LayersOfTwoKinds) {
  using testing::kTinyGemma3;
  const auto read = [](const Json& config) { return read_gemma3_config(config, {}); };
  Gemma3Config c = read(tiny_decoder(kTinyGemma3));
  EXPECT_EQ(c.sizes.windows, (Windows{5, 0, 5}));
  EXPECT_EQ(c.sizes.rope.theta, 1e6);
  EXPECT_EQ(c.local_rope.theta, 1e4);
  EXPECT_DOUBLE_EQ(c.attention_scale, 1 / std::sqrt(20.0));
  EXPECT_TRUE(c.sizes.tie_word_embeddings);
  EXPECT_EQ(c.sizes.pad_token_id, 0);
  c = read(without(kTinyGemma3, {"sliding_window_pattern", "query_pre_attn_scalar", "rope_theta",
                                 "rope_local_base_freq", "sliding_window"}));
  EXPECT_EQ(c.sizes.windows, (Windows{4096, 4096, 4096}));  // every sixth is global
  EXPECT_EQ(c.sizes.rope.theta, 1e6);
  EXPECT_EQ(c.local_rope.theta, 1e4);
  EXPECT_DOUBLE_EQ(c.attention_scale, 1.0 / 16);
  EXPECT_EQ(read(with(kTinyGemma3, {{"pad_token_id", Json()}})).sizes.pad_token_id, -1);
}

TEST(Gemma3Config, RopeOfBothGenerations) {
  using testing::kTinyGemma3;
  const auto read = [](const Json& config) { return read_gemma3_config(config, {}); };
  const Json four = with(kTinyGemma3, {{"rope_scaling", json(R"({"rope_type": "linear",
      "factor": 8.0})")}});
  Json five = without(kTinyGemma3, {"rope_theta", "rope_local_base_freq"});
  five.set("rope_parameters", json(R"({"full_attention": {"rope_type": "linear", "factor": 8.0,
      "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default",
      "rope_theta": 10000.0}})"));
  for (const Json& config : {four, five}) {
    const Gemma3Config c = read(config);
    EXPECT_EQ(c.sizes.rope.type, "linear");
    EXPECT_EQ(c.sizes.rope.factor, 8);
    EXPECT_EQ(c.sizes.rope.theta, 1e6);
    EXPECT_EQ(c.local_rope.type, "default");
    EXPECT_EQ(c.local_rope.theta, 1e4);
  }
  expect_refused(with(kTinyGemma3, {{"rope_parameters", json(R"({"rope_type": "default"})")}}),
                 {"rope_parameters", "full_attention"});
  expect_refused(
      with(kTinyGemma3, {{"rope_scaling", json(R"({"rope_type": "dynamic", "factor": 8.0})")}}),
      {"dynamic"});
}

TEST(Gemma3Config, UnbuiltFeaturesAreNamed) {
  using testing::kTinyGemma3;
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    expect_refused(with(kTinyGemma3, {{key, 30.0}}), {key, "30"});
    EXPECT_NO_THROW(make_model(with(kTinyGemma3, {{key, Json()}}), {}));
  }
  expect_refused(with(kTinyGemma3, {{"use_bidirectional_attention", true}}),
                 {"use_bidirectional_attention"});
  expect_refused(with(kTinyGemma3, {{"hidden_activation", "silu"}}), {"hidden_activation"});
  expect_refused(with(kTinyGemma3, {{"sliding_window", Json()}}),
                 {"layer 0 has sliding attention in this family, but there is no window"});
  expect_refused(with(kTinyGemma3, {{"rope_parameters", json(R"({"full_attention": [1]})")}}),
                 {"\"full_attention\" must be an object"});
  expect_refused(with(kTinyGemma3, {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor"});
  expect_refused(with(kTinyGemma3, {{"query_pre_attn_scalar", 0}}), {"query_pre_attn_scalar"});
}

TEST(Gemma3Parameters, NormsStartAtZero) {
  const auto model = make_model(tiny_decoder(testing::kTinyGemma3), {});
  int norms = 0;
  for (const ParameterSpec& p : model->parameters()) {
    if (p.name == "model.embed_tokens.weight") {
      EXPECT_EQ(p.init.zero_row, 0);
    }
    if (p.shape.size() != 1) continue;
    EXPECT_EQ(p.init.kind, InitRule::Kind::kZeros) << p.name;
    ++norms;
  }
  EXPECT_EQ(norms, 3 * 6 + 1);
}

// The layer types of the configured number are given, of which the first are used.
TEST(Decoders, NumLayersKeepsTheFirst) {
  for (const testing::TinyDecoder& family : testing::tiny_decoders()) {
    const Json config = tiny_decoder(family.config);
    EXPECT_LT(make_model(config, {1, {}})->parameters().size(),
              make_model(config, {})->parameters().size())
        << family.name;
    EXPECT_THROW(make_model(config, {4, {}}), UserError);
  }
}

}  // namespace
}  // namespace weft
