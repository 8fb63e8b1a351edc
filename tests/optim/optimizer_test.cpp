// tests/optim/optimizer_test.cpp: what the optimizers declare.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "kernel/kernels.h"
#include "optim/adamw.h"
#include "optim/sgd.h"
#include "optim/updates.h"

namespace weft {
namespace {

TEST(Optimizer, EachIsFoundByItsName) {
  std::set<std::string> names;
  for (const Optimizer* optimizer : all_optimizers()) {
    EXPECT_TRUE(names.insert(optimizer->name).second) << optimizer->name;
    EXPECT_EQ(&find_optimizer(optimizer->name), optimizer);
    EXPECT_TRUE(optimizer->update->traits.is_update) << optimizer->name;
  }
  EXPECT_THROW(find_optimizer("lion"), BugError);
}

TEST(Optimizer, AdamwCorrectsItsMomentsByTheUpdatesNumber) {
  OptimizerConfig c;
  c.betas = {0.5, 0.75};
  c.weight_decay = 0.1;
  const auto s = kAdamw.scalars(c, 1e-3, 2).as<AdamwScalars>();
  EXPECT_EQ(s.lr, 1e-3);
  EXPECT_EQ(s.bias1, 0.75);
  EXPECT_EQ(s.bias2, 1 - 0.75 * 0.75);
  EXPECT_EQ(s.weight_decay, 0.1);
  EXPECT_EQ(s.eps, 1e-8);
}

Graph sgd_graph(double momentum, bool masters) {
  Graph g;
  const Ref w = g.add({"w", {300, 2}, Dtype::kBf16, ValueKind::kParameter});
  g.updates = {{w, g.add({"w#grad", {300, 2}, Dtype::kF32, ValueKind::kGradient, w})}};
  OptimizerConfig c;
  c.name = "sgd";
  c.momentum = momentum;
  UpdateOptions options;
  options.master_weights = masters;
  add_updates(&g, kSgd, c, options);
  return g;
}

// Without momentum there is nothing to keep but masters.
TEST(Optimizer, SgdHasAStateWhereItHasMomentum) {
  EXPECT_TRUE(sgd_graph(0, false).of_kind(ValueKind::kState).empty());
  const Graph masters = sgd_graph(0, true);
  ASSERT_EQ(masters.of_kind(ValueKind::kState).size(), 1u);
  EXPECT_TRUE(masters.find("w#master"));
  const Graph both = sgd_graph(0.9, true);
  ASSERT_EQ(both.of_kind(ValueKind::kState).size(), 2u);
  EXPECT_EQ(both[*both.find("w#momentum")].dtype, Dtype::kF32);
  EXPECT_EQ(both[*both.find("w#momentum")].shape, (Shape{300, 2}));
  const Graph plain = sgd_graph(0.9, false);
  EXPECT_EQ(plain[*plain.find("w#momentum")].dtype, Dtype::kBf16);
  for (const Graph* g : {&masters, &both, &plain}) check_node(*g, g->finish.back());
}

}  // namespace
}  // namespace weft
