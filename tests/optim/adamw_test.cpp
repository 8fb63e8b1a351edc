// tests/optim/adamw_test.cpp: the update as nodes: order, states, decay.
#include "optim/adamw.h"

#include <gtest/gtest.h>

#include "graph/ops/adamw.h"
#include "graph/ops/grad_norm.h"
#include "graph/ops/head.h"
#include "graph/ops/rmsnorm.h"

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

TEST(Adamw, SquaresThenNormThenUpdates) {
  Graph g = with_gradients();
  add_adamw(&g, {});
  ASSERT_EQ(g.finish.size(), 5u);
  EXPECT_TRUE(g.pass.empty());
  const Op wanted[] = {&kSquaresOp, &kSquaresOp, &kNormOp, &kAdamwOp, &kAdamwOp};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(g.finish[i].op, wanted[i]) << i;
  EXPECT_EQ(g[g.finish[0].outputs[0]].shape, Shape{3});  // 600 elements, 256 a cell
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

TEST(Adamw, FrozenParametersHaveNoStates) {
  Graph g = with_gradients();
  add_adamw(&g, {});
  EXPECT_FALSE(g.find("frozen#m"));
  EXPECT_EQ(g.of_kind(ValueKind::kState).size(), 4u);
}

TEST(Adamw, MastersAreFp32AndStatesAsAsked) {
  Graph g = with_gradients();
  OptimizerOptions options;
  options.master_weights = true;
  options.state_dtype = Dtype::kBf16;
  add_adamw(&g, options);
  ASSERT_TRUE(g.find("w#master"));
  EXPECT_EQ(g[*g.find("w#master")].dtype, Dtype::kF32);
  EXPECT_EQ(g[*g.find("w#m")].dtype, Dtype::kBf16);
  EXPECT_EQ(g[*g.find("w#master")].parameter, *g.find("w"));
  EXPECT_EQ(g.finish[3].inputs.size(), 6u);
}

// The head reads it, the norm keeps it, and no checkpoint's state is made of it.
TEST(Adamw, LossScaleLiesBetweenHeadAndNorm) {
  Graph g = with_gradients();
  g.pass.push_back({&kRmsNormOp, {}, {}, {}, 0});
  g.pass.push_back({&kHeadLossGradOp, {g.updates[0].parameter}, {}, {}, -1});
  OptimizerOptions options;
  options.scales_loss = true;
  add_adamw(&g, options);
  const Ref scale = *g.find("loss_scale");
  EXPECT_EQ(g[scale].kind, ValueKind::kResult);
  EXPECT_EQ(value_bytes(g[scale]), 16);
  EXPECT_TRUE(g.pass[0].inputs.empty());
  EXPECT_EQ(g.pass[1].inputs, (std::vector<Ref>{g.updates[0].parameter, scale}));
  ASSERT_EQ(g.finish[2].outputs.size(), 3u);
  EXPECT_EQ(g.finish[2].outputs[2], scale);
}

TEST(Adamw, DecayAllOffSparesOneDimension) {
  Graph g = with_gradients();
  OptimizerOptions options;
  options.decay_all = false;
  add_adamw(&g, options);
  EXPECT_TRUE(g.finish[3].as<AdamwAttr>().decay);
  EXPECT_FALSE(g.finish[4].as<AdamwAttr>().decay);
}

}  // namespace
}  // namespace weft
