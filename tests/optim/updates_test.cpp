// tests/optim/updates_test.cpp: the step as nodes: order, states, decay, blocks.
#include "optim/updates.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ops/adamw.h"
#include "graph/ops/grad_norm.h"
#include "graph/ops/head.h"
#include "graph/ops/rmsnorm.h"
#include "optim/adamw.h"

namespace weft {
namespace {

// Three parameters, of which the first two have gradients.
Graph with_gradients() {
  Graph g;
  const Ref w = g.add({"w", {300, 2}, Dtype::kBf16, ValueKind::kParameter});
  const Ref b = g.add({"b", {5}, Dtype::kBf16, ValueKind::kParameter});
  g.add({"frozen", {7}, Dtype::kBf16, ValueKind::kParameter});
  g.updates = {{w, g.add({"w#grad", {300, 2}, Dtype::kF32, ValueKind::kGradient, w})},
               {b, g.add({"b#grad", {5}, Dtype::kF32, ValueKind::kGradient, b})}};
  return g;
}

TEST(Updates, SquaresThenNormThenUpdates) {
  Graph g = with_gradients();
  add_updates(&g, kAdamw, {}, {});
  ASSERT_EQ(g.finish.size(), 5u);
  EXPECT_TRUE(g.pass.empty());
  const Op wanted[] = {&kSquaresOp, &kSquaresOp, &kNormOp, &kAdamwOp, &kAdamwOp};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(g.finish[i].op, wanted[i]) << i;
  EXPECT_EQ(g[g.finish[0].outputs[0]].shape, Shape{3});  // 600 elements, 256 per cell
  EXPECT_EQ(g[g.finish[1].outputs[0]].shape, Shape{1});
  EXPECT_EQ(g.finish[2].inputs, (std::vector<Ref>{g.finish[0].outputs[0], g.finish[1].outputs[0]}));
  EXPECT_EQ(g[g.finish[2].outputs[0]].name, "grad_norm");
  EXPECT_EQ(g[g.finish[2].outputs[0]].dtype, Dtype::kF64);
  // Every update reads parameter, gradient, scale, m, v.
  const Node& update = g.finish[3];
  ASSERT_EQ(update.inputs.size(), 5u);
  const char* names[] = {"w", "w#grad", "grad_scale", "w#m", "w#v"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(g[update.inputs[i]].name, names[i]);
}

TEST(Updates, FrozenParametersHaveNoStates) {
  Graph g = with_gradients();
  add_updates(&g, kAdamw, {}, {});
  EXPECT_FALSE(g.find("frozen#m"));
  EXPECT_EQ(g.of_kind(ValueKind::kState).size(), 4u);
}

TEST(Updates, StatesAreKeptAsTheParameterIs) {
  Graph g = with_gradients();
  add_updates(&g, kAdamw, {}, {});
  EXPECT_EQ(g[*g.find("w#m")].dtype, Dtype::kBf16);
  EXPECT_FALSE(g.find("w#master"));
}

TEST(Updates, MastersAreFp32AndStatesToo) {
  Graph g = with_gradients();
  UpdateOptions options;
  options.master_weights = true;
  add_updates(&g, kAdamw, {}, options);
  ASSERT_TRUE(g.find("w#master"));
  EXPECT_EQ(g[*g.find("w#master")].dtype, Dtype::kF32);
  EXPECT_EQ(g[*g.find("w#m")].dtype, Dtype::kF32);
  EXPECT_EQ(g[*g.find("w#master")].parameter, *g.find("w"));
  EXPECT_EQ(g.finish[3].inputs.size(), 6u);
}

// The head reads it, the norm updates it, and it is not a state in checkpoints.
TEST(Updates, LossScaleConnectsHeadAndNorm) {
  Graph g = with_gradients();
  g.pass.push_back({&kRmsNormOp, {}, {}, {}, 0});
  g.pass.push_back({&kHeadLossGradOp, {g.updates[0].parameter}, {}, {}, -1});
  UpdateOptions options;
  options.scales_loss = true;
  add_updates(&g, kAdamw, {}, options);
  const Ref scale = *g.find("loss_scale");
  EXPECT_EQ(g[scale].kind, ValueKind::kResult);
  EXPECT_EQ(value_bytes(g[scale]), 16);
  EXPECT_TRUE(g.pass[0].inputs.empty());
  EXPECT_EQ(g.pass[1].inputs, (std::vector<Ref>{g.updates[0].parameter, scale}));
  ASSERT_EQ(g.finish[2].outputs.size(), 3u);
  EXPECT_EQ(g.finish[2].outputs[2], scale);
}

TEST(Updates, DecayAllOffSparesOneDimension) {
  Graph g = with_gradients();
  OptimizerConfig config;
  config.decay_all = false;
  add_updates(&g, kAdamw, config, {});
  EXPECT_TRUE(g.finish[3].as<UpdateAttr>().decay);
  EXPECT_FALSE(g.finish[4].as<UpdateAttr>().decay);
}

// An optimizer with one fp32 number per 64 elements, and a state of a separate type.
constexpr int64_t kBlock = 64;
std::vector<StateSpec> blocked_states(const OptimizerConfig&) {
  return {{"#q"}, {"#scale", StateSpec::Type::kF32, kBlock}};
}
const Optimizer kBlocked = {"blocked", &kAdamwOp, blocked_states, kAdamw.scalars, kAdamw.keys};

Portion portion_of_scale(const Portion& parameter, Shape local) {
  Graph g;
  Value p{"w", std::move(local), Dtype::kBf16, ValueKind::kParameter};
  p.portion = parameter;
  const Ref w = g.add(p);
  g.updates = {{w, g.add({"w#grad", p.shape, Dtype::kF32, ValueKind::kGradient, w})}};
  add_updates(&g, kBlocked, {}, {});
  const Value& scale = g[*g.find("w#scale")];
  EXPECT_EQ(scale.dtype, Dtype::kF32);
  EXPECT_EQ(g[*g.find("w#q")].dtype, Dtype::kBf16);
  EXPECT_EQ(num_elements(scale.shape), scale.portion->end - scale.portion->begin);
  return *scale.portion;
}

TEST(Updates, BlocksOfAStateFollowTheCutsOfItsParameter) {
  // Rows 2 to 4 of a matrix, and of these ZeRO's second shard.
  const Portion rows = portion_of_scale({"w", {8, 256}, {2, 0}, {2, 256}, 256, 512}, {256});
  EXPECT_EQ(rows.name, "w#scale");
  EXPECT_EQ(rows.shape, (Shape{8, 4}));
  EXPECT_EQ(rows.offset, (Shape{2, 0}));
  EXPECT_EQ(rows.extent, (Shape{2, 4}));
  EXPECT_EQ(rows.begin, 4);
  EXPECT_EQ(rows.end, 8);
  const Portion columns = portion_of_scale({"w", {8, 256}, {0, 128}, {8, 128}, 0, 1024}, {8, 128});
  EXPECT_EQ(columns.offset, (Shape{0, 2}));
  EXPECT_EQ(columns.extent, (Shape{8, 2}));
  // A last dimension that blocks do not divide: the state is flat, its last block short.
  const Portion flat = portion_of_scale({"w", {3, 50}, {0, 0}, {3, 50}, 0, 150}, {3, 50});
  EXPECT_EQ(flat.shape, Shape{3});
  EXPECT_EQ(flat.end, 3);
  EXPECT_THROW(portion_of_scale({"w", {8, 256}, {0, 32}, {8, 32}, 0, 256}, {8, 32}), BugError);
  EXPECT_THROW(portion_of_scale({"w", {4, 50}, {2, 0}, {2, 50}, 0, 100}, {2, 50}), BugError);
}

}  // namespace
}  // namespace weft
