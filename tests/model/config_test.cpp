// tests/model/config_test.cpp: config.json in the spellings of two generations, real
// configurations, and unbuilt features.
#include "model/llama/config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "model/decoder/model.h"
#include "model/family.h"
#include "model/qwen2/config.h"
#include "tests/io/temporary_folder.h"
#include "tests/shared_data.h"

namespace weft {
namespace {

using testing::error_of;

Json base_config() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})",
                    "config");
}

Json with(std::initializer_list<std::pair<const char*, Json>> keys) {
  Json config = base_config();
  for (const auto& [key, value] : keys) config.set(key, value);
  return config;
}

Json rope(const char* text) { return parse_json(text, "rope"); }

std::vector<double> frequencies_of(const Json& config) {
  const DecoderConfig c = read_llama_config(config);
  return rope_frequencies(c.rope, c.head_dim);
}

TEST(ModelConfig, DefaultsOfMissingKeys) {
  const DecoderConfig c = read_llama_config(base_config());
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rope.type, "default");
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_TRUE(read_qwen2_config(base_config()).qkv_bias);
  EXPECT_FALSE(read_qwen2_config(base_config()).o_bias);
}

// transformers 4 wrote rope_theta next to rope_scaling, 5 writes rope_parameters.
TEST(ModelConfig, RopeOfBothGenerations) {
  const Json four = with(
      {{"rope_theta", 500000.0}, {"rope_scaling", rope(R"({"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})")}});
  const Json old =
      with({{"rope_theta", 500000.0}, {"rope_scaling", rope(R"({"type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})")}});
  const Json five =
      with({{"rope_parameters", rope(R"({"rope_type": "llama3", "rope_theta": 500000.0,
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192})")}});
  const auto wanted = frequencies_of(four);
  EXPECT_EQ(frequencies_of(old), wanted);
  EXPECT_EQ(frequencies_of(five), wanted);
  // A field next to max_position_embeddings is preferred, as in transformers 5.
  Json outside = five;
  outside.set("original_max_position_embeddings", 4096);
  Json replaced = five;
  replaced.set("rope_parameters", rope(R"({"rope_type": "llama3", "rope_theta": 500000.0,
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 4096})"));
  EXPECT_EQ(frequencies_of(outside), frequencies_of(replaced));
  EXPECT_NE(frequencies_of(outside), wanted);
  const Json plain4 = with({{"rope_theta", 1e6}, {"rope_scaling", Json()}});
  const Json plain5 =
      with({{"rope_parameters", rope(R"({"rope_type": "default", "rope_theta": 1e6})")}});
  EXPECT_EQ(read_llama_config(plain4).rope.theta, 1e6);
  EXPECT_EQ(frequencies_of(plain4), frequencies_of(plain5));
}

void expect_frequencies(const char* parameters, const std::vector<double>& wanted) {
  const auto got = frequencies_of(with({{"rope_parameters", rope(parameters)}}));
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i] / wanted[i], 1, 5e-7) << i;
}

// Numbers of transformers 5.22.2 (LlamaRotaryEmbedding.inv_freq), head dim 16; its several fp32
// roundings are some 3e-7.
TEST(ModelConfig, RopeFrequenciesMatchTransformers) {
  expect_frequencies(R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})",
                     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05,
                      6.64786967e-06, 1.28917316e-06});
  expect_frequencies(R"({"rope_type": "llama3", "rope_theta": 10000.0, "factor": 32.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})",
                     {1.0, 0.236687109, 0.00372535503, 0.000988211832, 0.000312499993,
                      9.88211832e-05, 3.12500015e-05, 9.88211832e-06});
  expect_frequencies(R"({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})",
                     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466,
                      0.000250000012, 7.90569466e-05});
}

TEST(ModelConfig, DtypeKeysOfBothGenerationsAreIgnored) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    EXPECT_NO_THROW(make_model(with({{key, "bfloat16"}}), {}));
  }
}

TEST(ModelConfig, UnbuiltFeaturesAreNamed) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {with({{"rope_parameters", rope(R"({"rope_type": "yarn", "factor": 2})")}}), "yarn"},
      {with({{"rope_scaling", rope(R"({"type": "dynamic", "factor": 2})")}}), "dynamic"},
      {with({{"rope_parameters", rope(R"({"rope_type": "llama3"})")}}), "factor"},
      {with({{"use_sliding_window", true}}), "use_sliding_window"},
      {with({{"layer_types", rope(R"(["full_attention", "sliding_attention"])")}}),
       "sliding_attention"},
      {with({{"hidden_act", "relu"}}), "hidden_act"},
      {with({{"attention_dropout", 1.0}}), "attention_dropout"},
      {with({{"attention_dropout", -0.5}}), "attention_dropout"},
      {with({{"hidden_size", 0}}), "hidden_size"},
      {with({{"hidden_size", 66}}), "hidden_size"},
      {with({{"num_key_value_heads", 3}}), "num_key_value_heads"},
      {with({{"head_dim", 15}}), "15"},
      {with({{"head_dim", Json()}, {"hidden_size", 4}, {"num_attention_heads", 8}}),
       "num_attention_heads 8 does not divide hidden_size 4"},
      {with({{"head_dim", Json()}, {"num_attention_heads", 64}}), "a head dim of 1 is not built"},
      {with({{"pad_token_id", 100}}), "pad_token_id"},
      {with({{"architectures", rope(R"(["MambaForCausalLM"])")}}), "MambaForCausalLM"},
      {rope("{}"), "LlamaForCausalLM"}};
  for (const auto& [config, part] : cases) {
    const std::string e = error_of<UserError>([&, &c = config] { make_model(c, {}); });
    EXPECT_NE(e.find(part), std::string::npos) << e;
  }
  EXPECT_NO_THROW(make_model(with({{"attention_dropout", 0.5}}), {}));
  EXPECT_NO_THROW(make_model(with({{"attention_dropout", 1.5}}), {0, 0.0}));
  EXPECT_THROW(make_model(base_config(), {0, 1.0}), UserError);
  EXPECT_NO_THROW(make_model(with({{"use_sliding_window", false}, {"sliding_window", 4096}}), {}));
}

TEST(ModelConfig, NullIsAbsent) {
  EXPECT_EQ(read_llama_config(with({{"head_dim", Json()}, {"attention_bias", Json()}})).head_dim,
            16);
}

// Each of these acted as the default.
TEST(ModelConfig, FieldsOfAnotherTypeAreNamed) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {with({{"attention_bias", 1}}), "\"attention_bias\" must be true or false, got 1"},
      {with({{"attention_bias", "true"}}), "\"attention_bias\" must be true or false"},
      {with({{"mlp_bias", 0}}), "\"mlp_bias\" must be true or false, got 0"},
      {with({{"rope_parameters", rope("[1]")}}), "\"rope_parameters\" must be an object, got [1]"},
      {with({{"rope_scaling", "linear"}}), "\"rope_scaling\" must be an object"},
      {with({{"rope_parameters", rope(R"({"rope_type": 3})")}}),
       "\"rope_type\" must be a word, got 3"},
      {with({{"rope_parameters", rope(R"({"full_attention": {"rope_theta": 5}})")}}),
       "one type of layer (\"full_attention\")"},
      {with({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor other than 1"}};
  for (const auto& [config, part] : cases) {
    const std::string e = error_of<UserError>([&, &c = config] { make_model(c, {}); });
    EXPECT_NE(e.find(part), std::string::npos) << e << "\nwanted: " << part;
    EXPECT_TRUE(e.starts_with("config.json: ")) << e;
  }
  EXPECT_NO_THROW(make_model(with({{"partial_rotary_factor", 1.0}}), {}));
}

// transformers 5.22's, with the same files.
TEST(ModelConfig, DefaultsAreTransformers) {
  EXPECT_EQ(read_llama_config(base_config()).max_position_embeddings, 2048);
  EXPECT_EQ(read_qwen2_config(base_config()).max_position_embeddings, 32768);
  const Json llama3 = rope(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0})");
  const DecoderConfig c =
      read_llama_config(with({{"rope_parameters", llama3}, {"max_position_embeddings", 4096}}));
  EXPECT_EQ(c.rope.original_max_position_embeddings, 4096);
  const Json both = with({{"rope_parameters", rope(R"({"rope_theta": 5.0})")},
                          {"rope_scaling", rope(R"({"type": "linear", "factor": 2.0})")}});
  EXPECT_EQ(read_llama_config(both).rope.theta, 10000);
  EXPECT_EQ(read_llama_config(both).rope.factor, 2);
}

// Each of these trained until the first NaN, or on garbage.
TEST(ModelConfig, UntrainableConfigsAreNamed) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {with({{"rms_norm_eps", 0}}), "\"rms_norm_eps\" must be above 0, got 0"},
      {with({{"rms_norm_eps", -1e-6}}), "\"rms_norm_eps\" must be above 0, got -1e-06"},
      {with({{"rms_norm_eps", 1e-60}}), "rms_norm_eps"},
      {with({{"rms_norm_eps", 1e300}}), "\"rms_norm_eps\" must be a number in fp32's range"},
      {with({{"rope_theta", 0}}), "\"rope_theta\" must be above 0"},
      {with({{"rope_theta", -10000.0}}), "rope_theta"},
      {with({{"rope_parameters", rope(R"({"rope_theta": -1.0})")}}), "rope_theta"},
      {with({{"rope_scaling", rope(R"({"type": "linear", "factor": 0})")}}), "factor"},
      {with({{"rope_scaling", rope(R"({"type": "linear", "factor": 1e-38})")}}),
       "a factor of 1e-38 makes angles beyond fp32's range"},
      {with({{"rope_theta", 1e-37}}), "beyond fp32's range"},
      {with({{"rope_scaling", rope(R"({"type": "llama3", "factor": 8.0})")}}),
       "rope type llama3 needs \"low_freq_factor\""},
      {with({{"rope_scaling", rope(R"({"type": "llama3", "factor": 8.0, "low_freq_factor": 0})")}}),
       "low_freq_factor"},
      {with({{"initializer_range", -0.02}}), "\"initializer_range\""},
      {with({{"initializer_range", 1e39}}), "\"initializer_range\""},
      {with({{"quantization_config", rope(R"({"quant_method": "gptq", "bits": 4})")}}),
       "config.json: quantization_config with quant_method \"gptq\""},
      {with({{"compression_config", rope("{}")}}), "compression_config"},
      {with({{"eos_token_id", "2"}}), "\"eos_token_id\" is \"2\", wanted a token id"},
      {with({{"eos_token_id", -1}}), "\"eos_token_id\" is -1"},
      {with({{"eos_token_id", 2.5}}), "eos_token_id"},
      {with({{"eos_token_id", rope("[]")}}), "eos_token_id"},
      {with({{"eos_token_id", rope("[2, null]")}}), "\"eos_token_id\" is [2, null]"},
      {with({{"bos_token_id", rope("[1]")}}), "bos_token_id"},
      {with({{"pad_token_id", "0"}}),
       "\"pad_token_id\" is \"0\", wanted a token id (a whole number "
       "from 0), -1 (none) or null"}};
  for (const auto& [config, part] : cases) {
    const std::string e = error_of<UserError>([&, &c = config] { make_model(c, {}); });
    EXPECT_NE(e.find(part), std::string::npos) << e << "\nwanted: " << part;
    EXPECT_TRUE(e.starts_with("config.json: ")) << e;
  }
  EXPECT_NO_THROW(make_model(with({{"eos_token_id", rope("[2, 3]")}, {"pad_token_id", -1}}), {}));
  EXPECT_NO_THROW(
      make_model(with({{"quantization_config", Json()}, {"eos_token_id", Json()}}), {}));
  EXPECT_NO_THROW(make_model(with({{"initializer_range", 0}, {"rms_norm_eps", 1e-12}}), {}));
}

// A damaged file must not be planned for minutes, nor produce sizes that overflow 64 bits.
TEST(ModelConfig, AbsurdSizesAreNamed) {
  const int64_t billion = 1'000'000'000;
  const std::pair<const char*, int64_t> absurd[] = {{"num_hidden_layers", billion},
                                                    {"vocab_size", 2 * billion},
                                                    {"hidden_size", billion},
                                                    {"intermediate_size", billion},
                                                    {"num_attention_heads", billion},
                                                    {"num_key_value_heads", billion},
                                                    {"max_position_embeddings", INT64_MAX},
                                                    {"head_dim", billion},
                                                    {"hidden_size", INT64_MAX}};
  for (const auto& [key, value] : absurd) {
    const std::string e = error_of<UserError>([&, k = key, v = value] {
      make_model(with({{k, v}}), {});
    });
    EXPECT_NE(e.find(key), std::string::npos) << e;
    EXPECT_NE(e.find(std::to_string(value)), std::string::npos) << e;
    EXPECT_NE(e.find("up to "), std::string::npos) << e;
  }
  // Each is in range, but not all together.
  const Json huge = with({{"hidden_size", 1 << 20},
                          {"intermediate_size", 1 << 22},
                          {"num_hidden_layers", 1024},
                          {"num_attention_heads", 1 << 16},
                          {"vocab_size", 1 << 24}});
  const std::string e = error_of<UserError>([&] { make_model(huge, {}); });
  EXPECT_NE(e.find("hidden_size 1048576"), std::string::npos) << e;
  EXPECT_NE(e.find("parameters, more than"), std::string::npos) << e;
  // The largest published ones are far within: 405 B, and 126 layers.
  EXPECT_NO_THROW(make_model(with({{"hidden_size", 16384},
                                   {"intermediate_size", 53248},
                                   {"num_hidden_layers", 126},
                                   {"num_attention_heads", 128},
                                   {"num_key_value_heads", 8},
                                   {"vocab_size", 128256}}),
                             {}));
}

TEST(Families, AreChosenAmongThoseGiven) {
  const Family kOne[] = {
      {"TestForCausalLM", "test", known_families()[0].make, known_families()[0].traits}};
  EXPECT_EQ(make_model(with({{"architectures", Json::Array{"TestForCausalLM"}}}), {}, kOne)
                ->parameters()
                .size(),
            make_model(base_config(), {})->parameters().size());
  const std::string e = error_of<UserError>([&] { make_model(base_config(), {}, kOne); });
  EXPECT_NE(e.find("unknown architecture LlamaForCausalLM"), std::string::npos) << e;
  // By the model_type where no architecture is named.
  EXPECT_STREQ(make_model(with({{"architectures", Json()}, {"model_type", "qwen2"}}), {})->family(),
               "qwen2");
}

TEST(ModelConfig, NumLayersKeepsTheFirst) {
  const auto two = make_model(base_config(), {}), one = make_model(base_config(), {1, {}});
  EXPECT_EQ(two->parameters().size() - one->parameters().size(), 9u);
  EXPECT_THROW(make_model(base_config(), {3, {}}), UserError);
}

TEST(RealConfigs, HaveTheirPublishedSizes) {
  const std::filesystem::path folder = shared_data() / "configs";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  const std::vector<std::pair<const char*, int64_t>> models = {{"Qwen2.5-0.5B", 494'032'768},
                                                               {"Qwen2-7B-Instruct", 7'615'616'512},
                                                               {"Meta-Llama-3-8B", 8'030'261'248}};
  for (const auto& [name, wanted] : models) {
    const std::string file = std::string(name) + ".config.json";
    const auto model = make_model(parse_json(read_file(folder / file), file), {});
    EXPECT_EQ(count_parameters(*model), wanted) << name;
  }
}

}  // namespace
}  // namespace weft
