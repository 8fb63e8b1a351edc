// tests/model/init_test.cpp: random weights by the family's rule, keyed by name and element.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "model/model.h"

namespace weft {
namespace {

std::unique_ptr<Model> model(int64_t layers = 2) {
  Json config = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "pad_token_id": 7, "initializer_range": 0.03})",
                           "config");
  config.set("num_hidden_layers", layers);
  return make_model(config, {});
}

TEST(Init, NormsOneBiasesZeroWeightsNormal) {
  for (const ParameterSpec& p : model()->parameters()) {
    const int64_t n = num_elements(p.shape);
    double sum = 0, squares = 0, fourth = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = initial_element(p, 42, i);
      sum += v;
      squares += v * v;
      fourth += v * v * v * v;
    }
    if (p.shape.size() == 1) {
      const bool bias = p.name.ends_with(".bias");
      EXPECT_EQ(sum, bias ? 0 : n) << p.name;
      EXPECT_EQ(squares, bias ? 0 : n) << p.name;
      continue;
    }
    const double variance = squares / static_cast<double>(n), std = 0.03;
    // Five standard errors of mean, variance and kurtosis of n draws.
    const double root = std::sqrt(static_cast<double>(n));
    EXPECT_LT(std::abs(sum / static_cast<double>(n)), 5 * std / root) << p.name;
    EXPECT_LT(std::abs(variance / (std * std) - 1), 5 * std::sqrt(2.0) / root + 1.0 / 300)
        << p.name;
    EXPECT_LT(std::abs(fourth / static_cast<double>(n) / (variance * variance) - 3),
              5 * std::sqrt(24.0) / root + 0.02)
        << p.name;
  }
}

TEST(Init, ThePaddingRowIsZero) {
  for (const ParameterSpec& p : model()->parameters()) {
    if (p.name != "model.embed_tokens.weight") continue;
    for (int64_t c = 0; c < 64; ++c) {
      EXPECT_EQ(initial_element(p, 42, 7 * 64 + c), 0);
      EXPECT_NE(initial_element(p, 42, 8 * 64 + c), 0);
    }
  }
}

// An element depends only on seed, name and index; not on other tensors or layers.
TEST(Init, IsKeyedByNameAndElement) {
  std::map<std::string, ParameterSpec> few, many;
  for (const ParameterSpec& p : model(2)->parameters()) few[p.name] = p;
  for (const ParameterSpec& p : model(3)->parameters()) many[p.name] = p;
  for (const auto& [name, p] : few) {
    EXPECT_EQ(initial_element(p, 1, 33), initial_element(many.at(name), 1, 33)) << name;
  }
  const ParameterSpec &q0 = few.at("model.layers.0.self_attn.q_proj.weight"),
                      &q1 = few.at("model.layers.1.self_attn.q_proj.weight");
  EXPECT_NE(initial_element(q0, 1, 33), initial_element(q1, 1, 33));
  EXPECT_NE(initial_element(q0, 1, 33), initial_element(q0, 2, 33));
  EXPECT_NE(initial_element(q0, 1, 33), initial_element(q0, 1, 34));
}

TEST(Freeze, GlobsMarkAndUnknownOnesAreReported) {
  Graph graph;
  model()->trace_loss(&graph, {1, 4, Dtype::kF32, 0});
  freeze_parameters(&graph, model()->parameters(), {"model.layers.0.*", "*norm.weight"});
  int frozen = 0;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) frozen += graph[r].frozen;
  EXPECT_EQ(frozen, 12 + 2 + 1);  // a layer, two norms of the other, the last norm
  EXPECT_THROW(freeze_parameters(&graph, model()->parameters(), {"model.layers.9.*"}), UserError);
}

TEST(Parameters, TiedHeadIsNotASeparateParameter) {
  Json config = parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 300})",
                           "config");
  const int64_t apart = count_parameters(*make_model(config, {}));
  config.set("tie_word_embeddings", true);
  EXPECT_EQ(apart - count_parameters(*make_model(config, {})), 300 * 64);
}

}  // namespace
}  // namespace weft
