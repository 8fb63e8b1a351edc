// tests/train/placement_test.cpp: the rules propagated through a whole training graph of Qwen2, as
// tensor and data parallelism use them.
#include "graph/placement.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/ops/rmsnorm.h"
#include "model/model.h"
#include "parallel/recompute.h"

namespace weft {
namespace {

constexpr int kLayers = 3;

std::unique_ptr<Model> qwen2(bool tied) {
  Json c;
  c.set("architectures", Json(Json::Array{Json("Qwen2ForCausalLM")}));
  c.set("hidden_size", 32);
  c.set("intermediate_size", 48);
  c.set("num_hidden_layers", kLayers);
  c.set("num_attention_heads", 4);
  c.set("num_key_value_heads", 2);
  c.set("vocab_size", 64);
  c.set("tie_word_embeddings", tied);
  return make_model(c, {});
}

Graph training_graph(const Model& model) {
  Graph graph;
  const Ref losses = model.trace_loss(&graph, {2, 8, Dtype::kF32, 0});
  add_backward(&graph, losses, Dtype::kF32);
  recompute_cheap_values(&graph);
  return graph;
}

std::map<std::string, Placement> tensor_parallel(const Model& model) {
  std::map<std::string, Placement> given;
  for (const ParameterSpec& p : model.parameters()) {
    if (p.cut.dim >= 0) given[p.name] = cut(p.cut.dim);
  }
  return given;
}

TEST(Placement, TensorParallelNeedsTwoSumsPerLayerEachWay) {
  const auto model = qwen2(true);
  const Graph graph = training_graph(*model);
  const Placed placed = propagate_placements(graph, tensor_parallel(*model));
  // Forward: embedding, o and down of each layer. Backward: dx of the head, of gate + up and of q +
  // k + v of each layer. The head completes the losses itself.
  EXPECT_EQ(placed.reduced.size(), 1u + 2 * kLayers + 1 + 2 * kLayers);
}

TEST(Placement, EveryGradientIsPlacedLikeItsParameter) {
  for (const bool tied : {true, false}) {
    const auto model = qwen2(tied);
    const Graph graph = training_graph(*model);
    const Placed placed = propagate_placements(graph, tensor_parallel(*model));
    int checked = 0;
    for (Ref g : graph.of_kind(ValueKind::kGradient)) {
      const Ref p = graph[g].parameter;
      EXPECT_EQ(to_string(placed.values[static_cast<size_t>(g.id)]),
                to_string(placed.values[static_cast<size_t>(p.id)]))
          << graph[p].name;
      ++checked;
    }
    EXPECT_GT(checked, 20);
  }
}

TEST(Placement, DataParallelLeavesOnlyGradientsAndLossPartial) {
  const auto model = qwen2(true);
  const Graph graph = training_graph(*model);
  const Placed placed =
      propagate_placements(graph, {{"ids", cut(0)}, {"targets", cut(0)}, {"lengths", cut(0)}});
  EXPECT_TRUE(placed.reduced.empty());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& v = graph.values[i];
    const bool summed = v.kind == ValueKind::kGradient || v.name == "loss_sum";
    EXPECT_EQ(placed.values[i].is_partial(), summed) << v.name;
  }
}

TEST(Placement, AnOpWithoutARuleNamesItselfAndItsInputs) {
  const Node norm{&kRmsNormOp, {}, {}, RmsNormAttr{}, 0};
  try {
    norm.op->place(norm, {cut(2), whole()});
    FAIL();
  } catch (const BugError& e) {
    EXPECT_NE(std::string(e.what()).find("rmsnorm"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("cut(2)"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
