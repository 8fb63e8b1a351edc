// tests/exec/collectives_test.cpp: what follows a sum over ranks, with a group of one rank.
#include "graph/ops/collectives.h"

#include <gtest/gtest.h>

#include "exec/executor.h"
#include "exec/memory_parts.h"
#include "tests/exec/random_graph.h"

namespace weft {
namespace {

// Rows of more columns than are added at a time: every column has its own bias.
TEST(TensorSum, ABiasFollowsInEveryColumn) {
  constexpr int64_t kNumRows = 3, kColumns = 600;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    Graph graph;
    const Ref sum = graph.add({"sum", {kNumRows, kColumns}, Dtype::kF32, ValueKind::kInput});
    const Ref bias = graph.add({"bias", {kColumns}, dtype, ValueKind::kParameter});
    const Ref out = graph.add({"out", {kNumRows, kColumns}, dtype, ValueKind::kResult});
    graph.pass.push_back({&kAllReduceOp, {sum, bias}, {out}, CollectiveAttr{.has_bias = true}, 0});
    const Plan plan = make_plan(std::move(graph), {&ref_kernels(), 1, 1, 2, 1});
    ArenaLayout layout;
    layout.add(plan);
    const Arena arena(layout.total_bytes());
    ThreadPool pool(1);
    const auto alone = make_solo_comm();
    Mesh mesh;
    mesh.tp = 2;
    mesh.tensor = alone.get();
    Executor e(plan, layout, arena, &pool, mesh);
    for (int64_t i = 0; i < kNumRows * kColumns; ++i)
      e.input<float>("sum")[i] = static_cast<float>(i) / 4;
    for (int64_t c = 0; c < kColumns; ++c)
      store_element(e.find("bias"), dtype, c, static_cast<float>(c % 128));
    e.run_pass({});
    for (int64_t i = 0; i < kNumRows * kColumns; ++i) {
      const float wanted = static_cast<float>(i) / 4 + static_cast<float>(i % kColumns % 128);
      std::byte rounded[4];
      store_element(rounded, dtype, 0, wanted);
      ASSERT_EQ(load_element(e.find("out"), dtype, i), load_element(rounded, dtype, 0)) << i;
    }
  }
}

// By kind: what a plan of several passes keeps.
TEST(MemoryParts, AreTheBytesOfTheirKinds) {
  testing::GraphChoice c;
  c.shape.compute = Dtype::kBf16;
  c.masters = true;
  const Plan plan = make_plan(testing::training_graph(c), {&ref_kernels(), 1, 2});
  ArenaLayout layout;
  layout.add(plan);
  MemoryParts wanted;
  for (size_t i = 0; i < plan.graph.values.size(); ++i) {
    if (plan.memory.places[i].region == Place::Region::kNone) continue;
    const int64_t bytes = align_up(plan.memory.places[i].bytes);
    const ValueKind kind = plan.graph.values[i].kind;
    if (kind == ValueKind::kParameter) wanted.parameters += bytes;
    if (kind == ValueKind::kGradient) wanted.gradients += bytes;
    if (kind == ValueKind::kState) wanted.states += bytes;
  }
  const MemoryParts parts = memory_parts(plan, layout);
  EXPECT_EQ(parts.parameters, wanted.parameters);
  EXPECT_EQ(parts.gradients, wanted.gradients);
  EXPECT_EQ(parts.states, wanted.states);
  EXPECT_EQ(parts.communication, 0);
  EXPECT_EQ(parts.activations, align_up(plan.memory.most_live_bytes));
  EXPECT_EQ(parts.total(), layout.total_bytes());
}

}  // namespace
}  // namespace weft
