// tests/model/bloom_t5_test.cpp: configurations of BLOOM and T5: sizes, starts, heads, and fields
// that are not served.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/head_in_files.h"
#include "model/load.h"
#include "model/stored.h"
#include "model/t5/config.h"
#include "tests/io/temporary_folder.h"
#include "tests/shared_data.h"
#include "tests/tiny_decoders.h"

namespace weft {
namespace {

using testing::error_of;

Json bloom() {
  return parse_json(R"({"architectures": ["BloomForCausalLM"], "model_type": "bloom",
    "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100})",
                    "config");
}

Json t5() {
  return parse_json(R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
    "d_model": 64, "d_kv": 8, "d_ff": 96, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4,
    "vocab_size": 100, "pad_token_id": 0})",
                    "config");
}

Json with(Json config, const char* key, Json value) {
  config.set(key, std::move(value));
  return config;
}

TEST(FamilyConfigs, RealOnesHaveTheirPublishedSizes) {
  const std::filesystem::path folder = shared_data() / "configs";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  const std::pair<const char*, int64_t> models[] = {{"t5-small", 60'506'624},
                                                    {"t5-3b", 2'851'598'336},
                                                    {"t5-11b", 11'307'321'344},
                                                    {"bloom-560m", 559'214'592},
                                                    {"bloomz-1b1", 1'065'314'304}};
  for (const auto& [name, wanted] : models) {
    const std::string file = std::string(name) + ".config.json";
    const auto model = make_model(parse_json(read_file(folder / file), file), {});
    EXPECT_EQ(count_parameters(*model), wanted) << name;
  }
}

// Of bloom-560m's own file, and of transformers.
TEST(FamilyConfigs, BloomsFieldsHaveTwoNames) {
  Json old = parse_json(R"({"architectures": ["BloomForCausalLM"], "n_embed": 64, "n_layer": 2,
    "num_attention_heads": 4, "vocab_size": 100})",
                        "config");
  EXPECT_EQ(count_parameters(*make_model(old, {})), count_parameters(*make_model(bloom(), {})));
  // Of both, transformers takes n_embed.
  const auto model = make_model(with(bloom(), "n_embed", 32), {});
  EXPECT_EQ(model->parameters().front().shape, (Shape{100, 32}));
  EXPECT_EQ(make_model(bloom(), {})->dropout(), 0);
  EXPECT_EQ(make_model(with(bloom(), "hidden_dropout", 0.25), {})->dropout(), 0.25);
  EXPECT_EQ(make_model(with(bloom(), "hidden_dropout", 0.25), {0, 0.5})->dropout(), 0.5);
}

TEST(FamilyConfigs, FieldsThatAreNotServedAreNamed) {
  Json slow = with(bloom(), "slow_but_exact", true);
  EXPECT_NO_THROW(make_model(slow, {}));
  const Json gated = with(t5(), "feed_forward_proj", "gated-gelu");
  EXPECT_NO_THROW(
      make_model(with(with(gated, "dense_act_fn", "gelu_new"), "is_gated_act", true), {}));
  const std::pair<Json, const char*> cases[] = {
      {with(slow, "pretraining_tp", 2), "slow_but_exact with a pretraining_tp above 1"},
      {with(bloom(), "n_head", 5), "n_head 5 does not divide hidden_size 64"},
      {with(bloom(), "n_head", 9000), "\"n_head\" must be a positive whole number up to 8191"},
      {with(bloom(), "layer_norm_epsilon", 0), "\"layer_norm_epsilon\" must be above 0"},
      {with(bloom(), "hidden_dropout", 1.0), "hidden_dropout is 1"},
      {with(bloom(), "tie_word_embeddings", "no"), "tie_word_embeddings"},
      {with(t5(), "relative_attention_num_buckets", 0), "relative_attention_num_buckets"},
      {with(t5(), "relative_attention_num_buckets", 2), "relative_attention_num_buckets is 2"},
      {with(t5(), "relative_attention_num_buckets", 7), "wanted an even number from 4"},
      {with(t5(), "relative_attention_num_buckets", 130), "up to 128, got 130"},
      {with(t5(), "relative_attention_max_distance", 16), "relative_attention_max_distance of 16"},
      {with(t5(), "feed_forward_proj", "gated-silu"), "feed_forward_proj gated-silu is not built"},
      {with(t5(), "feed_forward_proj", 1), "\"feed_forward_proj\" must be a word, got 1"},
      {with(t5(), "dense_act_fn", "silu"), "dense_act_fn is silu, but feed_forward_proj relu"},
      {with(t5(), "is_gated_act", true), "is_gated_act is true, but feed_forward_proj relu"},
      {with(gated, "dense_act_fn", "relu"), "dense_act_fn is relu, but feed_forward_proj gated"},
      {with(gated, "is_gated_act", false), "is_gated_act is false, but feed_forward_proj gated"},
      {with(t5(), "is_encoder_decoder", false), "is_encoder_decoder false is not built"},
      {with(t5(), "decoder_start_token_id", 100), "decoder_start_token_id 100 is not below"},
      {with(t5(), "decoder_start_token_id", "pad"), "\"decoder_start_token_id\" is \"pad\""},
      {with(t5(), "tie_encoder_decoder", true), "tie_encoder_decoder is true"},
      {with(bloom(), "pruned_heads", parse_json(R"({"0": [1]})", "c")), "pruned_heads is {\"0\":"},
      {with(t5(), "d_kv", 512), "a d_kv of 512 is not built"},
      {with(t5(), "d_model", 0), "\"d_model\" must be a positive whole number"},
      {with(t5(), "num_layers", 5000), "num_layers"},
      {with(t5(), "layer_norm_epsilon", -1), "layer_norm_epsilon"},
      {with(t5(), "quantization_config", Json(Json::Object{})), "quantization_config"}};
  for (const auto& [config, part] : cases) {
    const std::string e = error_of<UserError>([&, &c = config] { make_model(c, {}); });
    EXPECT_NE(e.find(part), std::string::npos) << e << "\nwanted: " << part;
    EXPECT_TRUE(e.starts_with("config.json: ")) << e;
  }
}

// As transformers 4 wrote them into every file.
TEST(FamilyConfigs, DefaultsOfUnbuiltFieldsAreNotRefused) {
  Json config = with(t5(), "pruned_heads", Json(Json::Object{}));
  config.set("tie_encoder_decoder", false);
  EXPECT_EQ(make_model(config, {})->parameters().size(), make_model(t5(), {})->parameters().size());
  // Only an encoder-decoder has two sides to tie.
  EXPECT_NO_THROW(make_model(with(bloom(), "tie_encoder_decoder", true), {}));
}

TEST(FamilyConfigs, NumLayersKeepsTheFirst) {
  EXPECT_EQ(make_model(bloom(), {})->parameters().size() -
                make_model(bloom(), {1, {}})->parameters().size(),
            12u);
  const auto all = make_model(t5(), {})->parameters(),
             two = make_model(t5(), {2, {}})->parameters();
  EXPECT_EQ(all.size() - two.size(), 8u);              // a block of the encoder
  EXPECT_THROW(make_model(t5(), {3, {}}), UserError);  // the decoder has two
}

TEST(FamilyConfigs, DecoderStartIsConfiguredOrThePadding) {
  EXPECT_EQ(decoder_start_id(t5()), 0);
  EXPECT_EQ(decoder_start_id(with(t5(), "decoder_start_token_id", 5)), 5);
  EXPECT_EQ(decoder_start_id(with(t5(), "decoder_start_token_id", -1)), 0);  // -1: none
  EXPECT_EQ(make_model(with(t5(), "decoder_start_token_id", 5), {})->start_id(), 5);
  for (const Json& none : {Json(), Json(-1)}) {
    const std::string e =
        error_of<UserError>([&] { make_model(with(t5(), "pad_token_id", none), {}); });
    EXPECT_NE(e.find("neither decoder_start_token_id nor pad_token_id is a token"),
              std::string::npos)
        << e;
  }
}

// transformers 4 wrote tie_word_embeddings: false for v1.1, 5 writes scale_decoder_outputs.
TEST(FamilyConfigs, T5sOutputIsScaledAsTheConfigMeansIt) {
  const auto read = [](const Json& config) { return read_t5_config(config, {}); };
  EXPECT_TRUE(read(t5()).is_output_scaled && !read(t5()).has_separate_head);
  const Json four = with(t5(), "tie_word_embeddings", false);
  EXPECT_TRUE(!read(four).is_output_scaled && read(four).has_separate_head);
  const Json five = with(with(t5(), "tie_word_embeddings", true), "scale_decoder_outputs", false);
  EXPECT_TRUE(!read(five).is_output_scaled && !read(five).has_separate_head);
  const Json scaled = with(four, "scale_decoder_outputs", true);
  EXPECT_TRUE(read(scaled).is_output_scaled && read(scaled).has_separate_head);
}

// Standard deviations of transformers' rule, within five standard errors.
TEST(FamilyConfigs, T5Starts) {
  const std::pair<const char*, double> cases[] = {
      {"shared.weight", 2},
      {"encoder.block.1.layer.0.SelfAttention.q.weight", 2 / std::sqrt(64.0 * 8)},
      {"encoder.block.1.layer.0.SelfAttention.k.weight", 2 / 8.0},
      {"decoder.block.1.layer.1.EncDecAttention.v.weight", 2 / 8.0},
      {"decoder.block.1.layer.1.EncDecAttention.o.weight", 2 / std::sqrt(32.0)},
      {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2 / 8.0},
      {"decoder.block.0.layer.2.DenseReluDense.wi.weight", 2 / 8.0},
      {"decoder.block.0.layer.2.DenseReluDense.wo.weight", 2 / std::sqrt(96.0)}};
  const auto model = make_model(with(t5(), "initializer_factor", 2.0), {});
  size_t found = 0;
  for (const ParameterSpec& p : model->parameters()) {
    const auto n = num_elements(p.shape);
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += std::pow(initial_element(p, 42, i), 2);
    if (p.shape.size() == 1) {
      EXPECT_EQ(squares, 4.0 * static_cast<double>(n)) << p.name;
    }
    for (const auto& [name, std] : cases) {
      if (p.name != name) continue;
      ++found;
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(n)) / std, 1,
                  5 / std::sqrt(2.0 * static_cast<double>(n)))
          << name;
    }
  }
  EXPECT_EQ(found, std::size(cases));
}

// A folder whose files hold a shared embedding, and other tensors of its size.
class HeadInFiles : public ::testing::Test {
 protected:
  Json in_force(Json config, const std::vector<std::pair<std::string, float>>& tensors) const {
    std::ofstream(folder_ / "config.json") << config.dump();
    Json header(Json::Object{});
    std::string bytes;
    for (const auto& [name, value] : tensors) {
      Json entry(Json::Object{});
      const auto begin = static_cast<int64_t>(bytes.size());
      for (int i = 0; i < 6; ++i) bytes.append(reinterpret_cast<const char*>(&value), 4);
      entry.set("dtype", "F32");
      entry.set("shape", Json::Array{Json(3), Json(2)});
      entry.set("data_offsets", Json::Array{Json(begin), Json(begin + 24)});
      header.set(name, entry);
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8) << text << bytes;
    file.close();
    return config_in_force(HfFolder(folder_.path()));
  }
  testing::TemporaryFolder folder_;
};

TEST_F(HeadInFiles, OfItsOwnWhereItDiffers) {
  const Json five = with(with(t5(), "tie_word_embeddings", true), "scale_decoder_outputs", false);
  const Json own = in_force(five, {{"shared.weight", 1}, {"lm_head.weight", 2}});
  EXPECT_TRUE(read_t5_config(own, {}).has_separate_head);
  EXPECT_FALSE(read_t5_config(own, {}).is_output_scaled);
  EXPECT_EQ(in_force(five, {{"shared.weight", 1}, {"lm_head.weight", 1}}), five);
  EXPECT_EQ(in_force(five, {{"shared.weight", 1}}), five);
  const Json four = with(t5(), "tie_word_embeddings", false);
  EXPECT_EQ(in_force(four, {{"shared.weight", 1}, {"lm_head.weight", 2}}), four);
  const Json tied = in_force(four, {{"shared.weight", 1}});  // not scaled, though tied
  EXPECT_FALSE(read_t5_config(tied, {}).has_separate_head);
  EXPECT_FALSE(read_t5_config(tied, {}).is_output_scaled);
  const Json scaled = in_force(t5(), {{"shared.weight", 1}, {"lm_head.weight", 2}});
  EXPECT_TRUE(read_t5_config(scaled, {}).has_separate_head);
  EXPECT_TRUE(read_t5_config(scaled, {}).is_output_scaled);
  const Json typed = t5();
  Json unnamed(Json::Object{});
  for (const auto& [key, value] : typed.as_object()) {
    if (key != "model_type") unnamed.set(key, value);
  }
  const Json found = in_force(unnamed, {{"shared.weight", 1}, {"lm_head.weight", 2}});
  EXPECT_TRUE(read_t5_config(found, {}).has_separate_head);
}

// As transformers 5 does, which warns: the values of the head would be lost.
TEST_F(HeadInFiles, OfEveryFamilyIsItsOwnWhereItDiffers) {
  const std::pair<Json, const char*> families[] = {
      {bloom(), "transformer.word_embeddings.weight"},
      {bloom(), "word_embeddings.weight"},
      {parse_json(R"({"architectures": ["GPT2LMHeadModel"]})", "c"), "transformer.wte.weight"},
      {parse_json(R"({"model_type": "gemma3_text"})", "c"), "model.embed_tokens.weight"},
      {parse_json(R"({"model_type": "qwen2", "tie_word_embeddings": true})", "c"),
       "model.embed_tokens.weight"}};
  for (const auto& [config, embedding] : families) {
    EXPECT_EQ(in_force(config, {{embedding, 1}, {"lm_head.weight", 1}}), config) << embedding;
    EXPECT_EQ(in_force(config, {{embedding, 1}}), config) << embedding;
    const Json own = in_force(config, {{embedding, 1}, {"lm_head.weight", 2}});
    EXPECT_EQ(own, with(config, "tie_word_embeddings", false)) << embedding;
  }
  const Json untied = with(bloom(), "tie_word_embeddings", false);  // as the file has it
  EXPECT_EQ(in_force(untied, {{"word_embeddings.weight", 1}, {"lm_head.weight", 1}}), untied);
  const Json llama = parse_json(R"({"architectures": ["LlamaForCausalLM"]})", "c");
  EXPECT_EQ(in_force(llama, {{"model.embed_tokens.weight", 1}, {"lm_head.weight", 2}}), llama);
}

// A family with names and defaults of its own is declared in its folder alone.
const FamilyTraits& made_up_traits() {
  static const FamilyTraits kTraits{.is_head_tied = true,
                                    .head = "out.weight",
                                    .embeddings = {"tokens.weight"},
                                    .layer_keys = {"depth"},
                                    .embedding_copies = {"side.tokens.weight"}};
  return kTraits;
}

TEST_F(HeadInFiles, OfAMadeUpFamily) {
  const Family families[] = {{"MadeUpForCausalLM", "made_up", nullptr, made_up_traits}};
  const Json config = parse_json(R"({"architectures": ["MadeUpForCausalLM"]})", "c");
  const FamilyTraits traits = traits_of(config, families);
  EXPECT_EQ(traits.layer_keys, std::vector<std::string>{"depth"});
  const auto read = [&](const std::vector<std::pair<std::string, float>>& tensors) {
    in_force(config, tensors);
    return config_in_force(HfFolder(folder_.path()), traits);
  };
  EXPECT_EQ(read({{"tokens.weight", 1}, {"out.weight", 1}}), config);
  const Json untied = with(config, "tie_word_embeddings", false);
  EXPECT_EQ(read({{"tokens.weight", 1}, {"out.weight", 2}}), untied);
  EXPECT_EQ(read({{"tokens.weight", 1}, {"lm_head.weight", 2}}), config);  // another family's name
  EXPECT_NE(error_of<UserError>([&] {
              read({{"tokens.weight", 1}, {"side.tokens.weight", 2}});
            }).find("side.tokens.weight is not the same as tokens.weight"),
            std::string::npos);
}

TEST(FamilyTraits, OfEveryFamilyNameItsOwnParameters) {
  const std::pair<const char*, Json> families[] = {
      {"bloom", bloom()}, {"t5", t5()}, {"gpt2", parse_json(testing::kTinyGpt2, "c")}};
  for (const auto& [name, tied] : families) {
    const FamilyTraits& traits = traits_of(tied);
    const Json config = with(tied, "tie_word_embeddings", false);
    std::set<std::string> names;
    for (const ParameterSpec& p : make_model(config, {})->parameters())
      names.insert(stored_as(p).name);
    EXPECT_TRUE(names.contains(traits.head)) << name;
    EXPECT_TRUE(names.contains(traits.embeddings.front())) << name;
    EXPECT_NE(config.find(traits.layer_keys.front()), nullptr) << name;
  }
}

TEST(FamilyTraits, OfAnUnknownFamilyAreTransformersDefaults) {
  const FamilyTraits& traits = traits_of(parse_json(R"({"model_type": "later"})", "c"));
  EXPECT_TRUE(traits.is_unknown);
  EXPECT_TRUE(traits.is_head_tied);
  EXPECT_EQ(traits.head, "lm_head.weight");
  // An architecture that is not built, of a family that is.
  const Json part = parse_json(R"({"architectures": ["T5EncoderModel"], "model_type": "t5"})", "c");
  EXPECT_EQ(&traits_of(part), &traits_of(t5()));
  for (const Family& family : known_families()) {
    const auto& all = traits.embeddings;
    EXPECT_NE(std::find(all.begin(), all.end(), family.traits().embeddings.front()), all.end());
  }
}

TEST_F(HeadInFiles, ADroppedTieIsWarnedOf) {
  ::testing::internal::CaptureStderr();
  in_force(bloom(), {{"word_embeddings.weight", 1}, {"lm_head.weight", 2}});
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("lm_head.weight differs from word_embeddings.weight"), std::string::npos)
      << warning;
}

TEST(SameHead, OfTwoConfigurations) {
  const Json four = with(t5(), "tie_word_embeddings", false);
  const Json five = with(t5(), "scale_decoder_outputs", false);
  EXPECT_TRUE(has_same_head(t5(), with(t5(), "tie_word_embeddings", true)));
  EXPECT_FALSE(has_same_head(t5(), four));
  EXPECT_FALSE(has_same_head(t5(), five));
  EXPECT_FALSE(has_same_head(four, five));
  EXPECT_FALSE(has_same_head(bloom(), with(bloom(), "tie_word_embeddings", false)));
}

// transformers 4 would make a random one, transformers 5 uses the embedding.
TEST_F(HeadInFiles, AMissingHeadIsWarnedOf) {
  const auto warning = [&](bool is_tied, const std::vector<std::pair<std::string, float>>& files) {
    ::testing::internal::CaptureStderr();
    in_force(with(t5(), "tie_word_embeddings", is_tied), files);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(true, {{"shared.weight", 1}}), "");
  // A copy, and one of its own.
  EXPECT_EQ(warning(false, {{"shared.weight", 1}, {"lm_head.weight", 1}}), "");
  EXPECT_EQ(warning(false, {{"shared.weight", 1}, {"lm_head.weight", 2}}), "");
  const std::string missing = warning(false, {{"shared.weight", 1}});
  EXPECT_NE(missing.find("tie_word_embeddings: false, but the files hold no lm_head.weight"),
            std::string::npos)
      << missing;
  EXPECT_NE(missing.find("shared.weight is used"), std::string::npos) << missing;
  EXPECT_EQ(warning(false, {{"shared.weight", 1}}), "");  // once
}

TEST_F(HeadInFiles, CopiesOfTheEmbeddingMustBeCopies) {
  EXPECT_EQ(in_force(t5(), {{"shared.weight", 1}, {"encoder.embed_tokens.weight", 1}}), t5());
  const std::string e = error_of<UserError>([&] {
    in_force(t5(), {{"shared.weight", 1}, {"decoder.embed_tokens.weight", 2}});
  });
  EXPECT_NE(e.find("decoder.embed_tokens.weight is not the same as shared.weight"),
            std::string::npos)
      << e;
}

TEST(FamilyFiles, CopiesAndStrayTensorsAreNotWarnedOf) {
  ::testing::internal::CaptureStderr();
  warn_of_unknown_tensors(
      {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight",
       "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      t5(), "folder");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  warn_of_unknown_tensors({"decoder.block.7.layer.0.SelfAttention.q.weight"}, t5(), "folder");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("decoder.block.7"), std::string::npos);
}

}  // namespace
}  // namespace weft
