// tests/model/traced_graph_test.cpp: what a family's traced graph must contain, whatever its
// numbers: where dropout acts, and the scale of an embedding.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/op_rule.h"
#include "graph/ops/attention.h"
#include "graph/ops/dropout.h"
#include "graph/ops/scale.h"
#include "model/model.h"
#include "tests/tiny_decoders.h"

namespace weft {
namespace {

using testing::tiny_decoder;
using Lines = std::vector<std::string>;

Graph trace(const Json& config, Dtype compute = Dtype::kF32) {
  Graph graph;
  make_model(config, {})
      ->trace_loss(
          &graph,
          {.batch = 2, .positions = 4, .compute = compute, .drops = true, .source_positions = 3});
  return graph;
}

// The operation, with the weight that it reads.
std::string text_of(const Graph& graph, const Node& node) {
  for (const Ref r : node.inputs) {
    if (!r || graph[r].kind != ValueKind::kParameter) continue;
    std::string name = graph[r].name;
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    return fmt::format("{} {}", node.op->name, name);
  }
  return node.op->name;
}

std::vector<const Node*> readers_of(const Graph& graph, Ref value) {
  std::vector<const Node*> found;
  for (const Node& node : graph.pass) {
    if (std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end())
      found.push_back(&node);
  }
  return found;
}

const Node* writer_of(const Graph& graph, Ref value) {
  for (const Node& node : graph.pass) {
    if (std::find(node.outputs.begin(), node.outputs.end(), value) != node.outputs.end())
      return &node;
  }
  return nullptr;
}

// "RATE: WRITER > READER" of each dropout, in order. Nothing else may read what it drops, and each
// draws a mask of its own.
Lines dropouts(const Graph& graph) {
  Lines lines;
  std::set<int64_t> sites;
  for (const Node& node : graph.pass) {
    if (node.op != &kDropoutOp) continue;
    const Node* writer = writer_of(graph, node.inputs[0]);
    const auto readers = readers_of(graph, node.outputs[0]);
    if (!writer || readers.empty()) return {"a dropout between nothing"};
    EXPECT_EQ(readers_of(graph, node.inputs[0]).size(), 1u) << text_of(graph, *writer);
    EXPECT_TRUE(sites.insert(node.as<DropoutAttr>().site).second) << text_of(graph, *writer);
    lines.push_back(fmt::format("{}: {} > {}", node.as<DropoutAttr>().rate, text_of(graph, *writer),
                                text_of(graph, *readers[0])));
  }
  return lines;
}

// The rates of all attentions, each with a mask of its own.
std::vector<double> attention_rates(const Graph& graph) {
  std::vector<double> rates;
  std::set<int64_t> sites;
  for (const Node& node : graph.pass) {
    if (node.op != &kAttentionOp) continue;
    rates.push_back(node.as<AttentionAttr>().dropout);
    EXPECT_TRUE(sites.insert(node.as<AttentionAttr>().dropout_site).second);
  }
  return rates;
}

// transformers' T5Stack: after the embedding and after the last norm; T5LayerSelfAttention,
// T5LayerCrossAttention and T5LayerFF: before the sum; T5DenseActDense: before wo; T5Attention: of
// the probabilities.
TEST(DropoutSites, T5) {
  Json config = parse_json(R"({"architectures": ["T5ForConditionalGeneration"],
    "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 50,
    "pad_token_id": 0, "dropout_rate": 0.25})",
                           "config");
  const auto wanted = [](const std::string& act) {
    return Lines{
        "0.25: embedding shared > rmsnorm encoder.block.0.layer.0.layer_norm",
        "0.25: linear encoder.block.0.layer.0.SelfAttention.o > "
        "rmsnorm encoder.block.0.layer.1.layer_norm",
        "0.25: " + act + " > linear encoder.block.0.layer.1.DenseReluDense.wo",
        "0.25: linear encoder.block.0.layer.1.DenseReluDense.wo > rmsnorm encoder.final_layer_norm",
        "0.25: rmsnorm encoder.final_layer_norm > "
        "linear decoder.block.0.layer.1.EncDecAttention.k",
        "0.25: embedding shared > rmsnorm decoder.block.0.layer.0.layer_norm",
        "0.25: linear decoder.block.0.layer.0.SelfAttention.o > "
        "rmsnorm decoder.block.0.layer.1.layer_norm",
        "0.25: linear decoder.block.0.layer.1.EncDecAttention.o > "
        "rmsnorm decoder.block.0.layer.2.layer_norm",
        "0.25: " + act + " > linear decoder.block.0.layer.2.DenseReluDense.wo",
        "0.25: linear decoder.block.0.layer.2.DenseReluDense.wo > rmsnorm decoder.final_layer_norm",
        "0.25: rmsnorm decoder.final_layer_norm > scale"};
  };
  EXPECT_EQ(dropouts(trace(config)), wanted("relu"));
  EXPECT_EQ(attention_rates(trace(config)), std::vector<double>(3, 0.25));
  config.set("feed_forward_proj", "gated-gelu");
  EXPECT_EQ(dropouts(trace(config)), wanted("geglu"));
}

// dropout_add after BloomAttention's and BloomMLP's last product; nothing after the embedding.
TEST(DropoutSites, Bloom) {
  const Graph graph = trace(tiny_decoder(testing::kTinyBloom));
  EXPECT_EQ(dropouts(graph),
            (Lines{"0.1: linear transformer.h.0.self_attention.dense > "
                   "layernorm transformer.h.0.post_attention_layernorm",
                   "0.1: linear transformer.h.0.mlp.dense_4h_to_h > "
                   "layernorm transformer.h.1.input_layernorm",
                   "0.1: linear transformer.h.1.self_attention.dense > "
                   "layernorm transformer.h.1.post_attention_layernorm",
                   "0.1: linear transformer.h.1.mlp.dense_4h_to_h > layernorm transformer.ln_f"}));
  EXPECT_EQ(attention_rates(graph), std::vector<double>(2, 0.2));
}

// embd_pdrop of the sum of both embeddings, resid_pdrop after each c_proj.
TEST(DropoutSites, Gpt2) {
  const Graph graph = trace(tiny_decoder(testing::kTinyGpt2));
  EXPECT_EQ(dropouts(graph),
            (Lines{"0.1: add > layernorm transformer.h.0.ln_1",
                   "0.15: linear transformer.h.0.attn.c_proj > layernorm transformer.h.0.ln_2",
                   "0.15: linear transformer.h.0.mlp.c_proj > layernorm transformer.h.1.ln_1",
                   "0.15: linear transformer.h.1.attn.c_proj > layernorm transformer.h.1.ln_2",
                   "0.15: linear transformer.h.1.mlp.c_proj > layernorm transformer.ln_f"}));
  EXPECT_EQ(attention_rates(graph), std::vector<double>(2, 0.2));
}

// attention_dropout alone.
TEST(DropoutSites, OthersDropProbabilitiesOnly) {
  for (const char* text : {testing::kTinyQwen3, testing::kTinyMistral, testing::kTinyQwen2Window,
                           testing::kTinyGemma3}) {
    Json config = tiny_decoder(text);
    config.set("attention_dropout", 0.3);
    const Graph graph = trace(config);
    EXPECT_EQ(dropouts(graph), Lines{}) << text;
    const auto layers = static_cast<size_t>(config.at("num_hidden_layers").as_int());
    EXPECT_EQ(attention_rates(graph), std::vector<double>(layers, 0.3)) << text;
  }
}

// Gemma3TextScaledWordEmbedding rounds sqrt(C) to the type of the weights: 6.928 is no bf16.
TEST(Gemma3Graph, TheScaleOfTheEmbeddingIsRounded) {
  Json config = tiny_decoder(testing::kTinyGemma3);
  config.set("hidden_size", 48);
  const auto scale = [&](Dtype compute) {
    const Graph graph = trace(config, compute);
    for (const Node& node : graph.pass) {
      if (node.op == &kScaleOp) return node.as<ScaleAttr>().factor;
    }
    return 0.0f;
  };
  EXPECT_EQ(scale(Dtype::kF32), 6.92820323f);
  EXPECT_EQ(scale(Dtype::kBf16), 6.9375f);
}

}  // namespace
}  // namespace weft
