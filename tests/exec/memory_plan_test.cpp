// tests/exec/memory_plan_test.cpp: no two live values share a byte: checked by brute force over
// random models, with independently computed lifetimes.
#include "exec/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "exec/plan.h"
#include "graph/ops/rope.h"
#include "tests/exec/random_graph.h"

namespace weft {
namespace {

using testing::GraphChoice;
using testing::random_choice;
using testing::training_graph;

struct Life {
  int first = -1, last = -1;  // nodes that write it first and touch it last
};

std::vector<const Node*> all_nodes(const Graph& graph) {
  std::vector<const Node*> nodes;
  for (const Node& n : graph.pass) nodes.push_back(&n);
  for (const Node& n : graph.finish) nodes.push_back(&n);
  return nodes;
}

std::vector<Life> lives_of(const Graph& graph) {
  std::vector<Life> lives(graph.values.size());
  const auto nodes = all_nodes(graph);
  for (int t = 0; t < static_cast<int>(nodes.size()); ++t) {
    for (Ref r : nodes[static_cast<size_t>(t)]->inputs) lives[static_cast<size_t>(r.id)].last = t;
    for (Ref r : nodes[static_cast<size_t>(t)]->outputs) {
      if (!r) continue;
      Life& life = lives[static_cast<size_t>(r.id)];
      if (life.first < 0) life.first = t;
      life.last = t;
    }
  }
  return lives;
}

bool overlap(const Place& a, const Place& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// `from` dies in the node that makes `to`, and the op may work in place on it.
bool is_permitted(const Node& node, int from, int to) {
  for (const InPlace& rule : node.op->in_place(node)) {
    if (rule.output >= node.outputs.size() || node.outputs[rule.output].id != to) continue;
    for (const size_t k : rule.inputs) {
      if (k < node.inputs.size() && node.inputs[k].id == from) return true;
    }
  }
  return false;
}

void check_plan(const Graph& graph, const MemoryPlan& plan, int num_passes) {
  const auto nodes = all_nodes(graph);
  const std::vector<Life> lives = lives_of(graph);
  ASSERT_EQ(plan.places.size(), graph.values.size());
  std::vector<size_t> step, persistent;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Place& p = plan.places[i];
    const ValueKind kind = graph.values[i].kind;
    const bool is_step =
        kind == ValueKind::kActivation || (kind == ValueKind::kGradient && num_passes == 1);
    if (is_step && lives[i].first < 0) continue;  // a value that recompute left behind
    ASSERT_EQ(p.region, is_step ? Place::Region::kStep : Place::Region::kPersistent)
        << graph.values[i].name;
    EXPECT_EQ(p.bytes, value_bytes(graph.values[i]));
    EXPECT_EQ(p.offset % kAlignment, 0);
    EXPECT_LE(p.offset + p.bytes, is_step ? plan.step_bytes : plan.persistent_bytes);
    (is_step ? step : persistent).push_back(i);
  }
  for (size_t a : persistent) {
    for (size_t b : persistent) {
      ASSERT_TRUE(a >= b || !overlap(plan.places[a], plan.places[b]));
    }
  }
  for (size_t a : step) {
    for (size_t b : step) {
      if (a == b || lives[a].first > lives[b].first || !overlap(plan.places[a], plan.places[b]))
        continue;
      if (lives[a].last < lives[b].first) continue;
      const bool handed_over = lives[a].last == lives[b].first &&
                               is_permitted(*nodes[static_cast<size_t>(lives[b].first)],
                                            static_cast<int>(a), static_cast<int>(b));
      ASSERT_TRUE(handed_over) << graph.values[a].name << " and " << graph.values[b].name;
    }
  }
}

TEST(MemoryPlan, LiveValuesNeverOverlap) {
  std::mt19937 random(20240);
  for (int i = 0; i < 300; ++i) {
    const GraphChoice choice = random_choice(&random);
    const Graph graph = training_graph(choice);
    for (int passes : {1, 2}) {
      SCOPED_TRACE(fmt::format("model {}, {} passes", i, passes));
      check_plan(graph, plan_memory(graph, passes), passes);
      if (HasFatalFailure()) return;
    }
  }
}

// A node's scratch overlaps no value that the node reads or writes, or that lives across it.
TEST(MemoryPlan, ScratchOverlapsNoLiveValue) {
  std::mt19937 random(77);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = training_graph(random_choice(&random));
    const auto nodes = all_nodes(graph);
    std::vector<int64_t> scratch(nodes.size());
    for (int64_t& bytes : scratch)
      bytes = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 50000);
    const MemoryPlan plan = plan_memory(graph, 1, make_schedule(graph, graph.pass),
                                        make_schedule(graph, graph.finish), scratch);
    check_plan(graph, plan, 1);
    const std::vector<Life> lives = lives_of(graph);
    ASSERT_EQ(plan.scratch.size(), nodes.size());
    for (size_t t = 0; t < nodes.size(); ++t) {
      const Place& s = plan.scratch[t];
      ASSERT_EQ(s.region == Place::Region::kNone, scratch[t] == 0);
      if (scratch[t] == 0) continue;
      EXPECT_GE(s.bytes, scratch[t]);
      EXPECT_EQ(s.offset % kAlignment, 0);
      EXPECT_LE(s.offset + s.bytes, plan.step_bytes);
      for (size_t v = 0; v < lives.size(); ++v) {
        if (plan.places[v].region != Place::Region::kStep) continue;
        const auto at = static_cast<int>(t);
        if (lives[v].first > at || lives[v].last < at) continue;
        ASSERT_FALSE(overlap(s, plan.places[v])) << graph.values[v].name << " at node " << t;
      }
    }
  }
}

// Negative control: one value moved onto another is detected.
TEST(MemoryPlan, TheCheckWouldFindAnOverlap) {
  const Graph graph = training_graph({});
  MemoryPlan plan = plan_memory(graph, 2);
  const auto lives = lives_of(graph);
  const Ref lse = *graph.find("layer0.lse"), rstd = *graph.find("layer1.rstd");
  ASSERT_LT(lives[static_cast<size_t>(lse.id)].first, lives[static_cast<size_t>(rstd.id)].first);
  plan.places[static_cast<size_t>(rstd.id)].offset =
      plan.places[static_cast<size_t>(lse.id)].offset;
  bool found = false;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (static_cast<int>(i) == lse.id || plan.places[i].region != Place::Region::kStep) continue;
    const bool together = lives[i].first >= 0 &&
                          lives[i].first <= lives[static_cast<size_t>(lse.id)].last &&
                          lives[i].last >= lives[static_cast<size_t>(lse.id)].first;
    found =
        found || (together && overlap(plan.places[i], plan.places[static_cast<size_t>(lse.id)]));
  }
  EXPECT_TRUE(found);
}

TEST(MemoryPlan, RopeWorksInPlace) {
  const Graph graph = training_graph({});
  const MemoryPlan plan = plan_memory(graph, 1);
  int ropes = 0;
  for (const Node& n : graph.pass) {
    if (n.op != &kRopeOp && n.op != &kRopeInverseOp) continue;
    const Place &in = plan.places[static_cast<size_t>(n.inputs[0].id)],
                &out = plan.places[static_cast<size_t>(n.outputs[0].id)];
    EXPECT_EQ(in.offset, out.offset);
    ++ropes;
  }
  EXPECT_EQ(ropes, 4);
}

TEST(MemoryPlan, OnePassLetsGradientsShareMemory) {
  GraphChoice c;
  c.shape.B = 4;
  c.shape.T = 16;
  const Graph graph = training_graph(c);
  const MemoryPlan one = plan_memory(graph, 1), two = plan_memory(graph, 2);
  int64_t gradients = 0;
  for (Ref r : graph.of_kind(ValueKind::kGradient)) {
    gradients += align_up(value_bytes(graph[r]));
    EXPECT_EQ(one.places[static_cast<size_t>(r.id)].region, Place::Region::kStep);
    EXPECT_EQ(two.places[static_cast<size_t>(r.id)].region, Place::Region::kPersistent);
  }
  EXPECT_EQ(two.persistent_bytes - one.persistent_bytes, gradients);
  EXPECT_LT(one.persistent_bytes + one.step_bytes, two.persistent_bytes + two.step_bytes);
}

TEST(MemoryPlan, RecomputingNeedsLess) {
  GraphChoice c;
  c.shape.layers = 6;
  c.shape.T = 16;
  const int64_t with = plan_memory(training_graph(c), 2).step_bytes;
  c.recompute = false;
  EXPECT_LT(with, plan_memory(training_graph(c), 2).step_bytes);
}

TEST(ArenaLayoutTest, PlansShareValuesByName) {
  GraphChoice c;
  const Plan train = make_plan(training_graph(c), {&ref_kernels(), 1, 2});
  Graph forward;
  add_loss_sum(&forward, testing::trace_decoder(&forward, c.shape));
  const Plan eval = make_plan(std::move(forward), {&ref_kernels(), 1, 1});
  ArenaLayout layout;
  layout.add(train);
  const int64_t alone = layout.persistent_bytes();
  EXPECT_EQ(alone, train.memory.persistent_bytes);
  layout.add(eval);
  EXPECT_EQ(layout.persistent_bytes(), alone) << "every name of the second is one of the first";
  EXPECT_EQ(layout.step_bytes(),
            std::max(align_up(train.memory.step_bytes), align_up(eval.memory.step_bytes)));
  EXPECT_EQ(layout.total_bytes(), layout.step_offset() + layout.step_bytes());
  EXPECT_EQ(layout.step_offset(), layout.persistent_bytes());
  EXPECT_EQ(layout.offset("embed") % kAlignment, 0);
  EXPECT_NE(layout.offset("embed"), layout.offset("embed#m"));
  EXPECT_ANY_THROW(layout.offset("nothing"));
}

}  // namespace
}  // namespace weft
