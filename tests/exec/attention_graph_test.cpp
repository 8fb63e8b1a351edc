// tests/exec/attention_graph_test.cpp: every form of attention in a graph, run, with gradients
// against differences of the loss.
#include <gtest/gtest.h>

#include "base/exact_sum.h"
#include "base/random.h"
#include "exec/executor.h"
#include "graph/autodiff.h"
#include "kernel/cpu/level.h"
#include "optim/updates.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

constexpr int64_t kB = 2, kT = 5, kS = 7, kHeads = 2, kHeadDim = 4, kC = kHeads * kHeadDim;
constexpr int64_t kVocab = 11, kBuckets = 8;
const HeadShape kShape{kHeads, kHeads, kHeadDim};

// An encoder whose two layers share a relative table; a decoder with a causal table and a window
// over separate q, k and v, one with ALiBi over interleaved heads, then attention to the encoder
// over q and kv.
Graph encoder_decoder() {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const auto weight = [&](const std::string& name, int64_t rows) {
    return g.parameter(name, {rows, kC});
  };
  const Ref source_ids = g.input("source_ids", {kB, kS}, Dtype::kI32);
  const Ref source_lengths = g.input("source_lengths", {kB}, Dtype::kI32);
  const Ref ids = g.input("ids", {kB, kT}, Dtype::kI32);
  const Ref lengths = g.input("lengths", {kB}, Dtype::kI32);
  const Ref targets = g.input("targets", {kB, kT}, Dtype::kI32);
  const Ref embed = weight("embed", kVocab);
  const Ref table = g.parameter("table", {kBuckets, kHeads});
  Ref x = ops::embedding(g, source_ids, embed, -1);
  for (const char* layer : {"0", "1"}) {
    const Ref qkv = ops::linear(g, x, {weight(fmt::format("enc.{}.qkv", layer), 3 * kC)}, {});
    x = ops::attention(g, {.values = {qkv},
                           .heads = kShape,
                           .lengths = source_lengths,
                           .causal = false,
                           .scale = 1.0f,
                           .bias = ScoreBias::kRelative,
                           .table = table,
                           .max_distance = 6});
  }
  Ref y = ops::embedding(g, ids, embed, -1);
  y = ops::attention(g, {.layout = QkvLayout::kSeparate,
                         .values = {ops::linear(g, y, {weight("dec.q", kC)}, {}),
                                    ops::linear(g, y, {weight("dec.k", kC)}, {}),
                                    ops::linear(g, y, {weight("dec.v", kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .window = 3,
                         .bias = ScoreBias::kRelative,
                         .table = g.parameter("dec.table", {4, kHeads}),
                         .max_distance = 5});
  y = ops::attention(g, {.layout = QkvLayout::kInterleaved,
                         .values = {ops::linear(g, y, {weight("dec.qkv", 3 * kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .bias = ScoreBias::kAlibi});
  y = ops::attention(g, {.layout = QkvLayout::kQAndKv,
                         .values = {ops::linear(g, y, {weight("cross.q", kC)}, {}),
                                    ops::linear(g, x, {weight("cross.kv", 2 * kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .source_lengths = source_lengths,
                         .causal = false});
  add_backward(&graph, ops::head_loss(g, y, embed, targets, 4), Dtype::kF32);
  add_updates(&graph, find_optimizer("adamw"), {}, {});  // a reader, which keeps gradients alive
  return graph;
}

class GraphRun {
 public:
  explicit GraphRun(const Kernels& kernels, int passes = 1)
      : plan_(make_plan(encoder_decoder(), {&kernels, 1, passes})),
        layout_(layout_of(plan_)),
        arena_(layout_.total_bytes()),
        pool_(1),
        executor_(plan_, layout_, arena_, &pool_),
        passes_(passes) {
    for (const Value& v : plan_.graph.values) {
      if (v.kind != ValueKind::kParameter) continue;
      for (int64_t i = 0; i < num_elements(v.shape); ++i) {
        at(v.name)[i] = static_cast<float>(
            0.45 * normal_at(1, std::hash<std::string>{}(v.name), static_cast<uint64_t>(i)));
      }
    }
  }

  double loss() {
    StepScalars s;
    for (s.pass = 0; s.pass < passes_; ++s.pass) {
      feed();
      executor_.run_pass(s);
    }
    return executor_.at<ExactSum>("loss_sum")->value();
  }
  float* at(const std::string& name) const { return executor_.at<float>(name); }
  const Graph& graph() const { return plan_.graph; }

 private:
  static ArenaLayout layout_of(const Plan& plan) {
    ArenaLayout layout;
    layout.add(plan);
    return layout;
  }
  void feed() const {
    for (int64_t i = 0; i < kB * kS; ++i) {
      executor_.at<int32_t>("source_ids")[i] = static_cast<int32_t>(i * 7 % kVocab);
    }
    for (int64_t i = 0; i < kB * kT; ++i) {
      executor_.at<int32_t>("ids")[i] = static_cast<int32_t>(i * 5 % kVocab);
      executor_.at<int32_t>("targets")[i] =
          i == 8 || i == 9 ? -1 : static_cast<int32_t>(i % kVocab);
    }
    executor_.at<int32_t>("lengths")[0] = kT;
    executor_.at<int32_t>("lengths")[1] = 3;
    executor_.at<int32_t>("source_lengths")[0] = 4;
    executor_.at<int32_t>("source_lengths")[1] = kS;
  }

  Plan plan_;
  ArenaLayout layout_;
  Arena arena_;
  ThreadPool pool_;
  Executor executor_;
  int passes_;
};

std::vector<float> gradients_of(const GraphRun& run) {
  std::vector<float> all;
  for (const Update& u : run.graph().updates) {
    const Value& v = run.graph()[u.gradient];
    const float* d = run.at(v.name);
    all.insert(all.end(), d, d + num_elements(v.shape));
  }
  return all;
}

TEST(AttentionGraph, GradientsAreTheDifferences) {
  GraphRun run(ref_kernels());
  run.loss();
  const std::vector<float> gradients = gradients_of(run);
  size_t at = 0;
  for (const Update& u : run.graph().updates) {
    const Value& v = run.graph()[u.parameter];
    for (int64_t i = 0; i < num_elements(v.shape); ++i, ++at) {
      float& x = run.at(v.name)[i];
      const float old = x;
      x = old + 0x1p-7f;
      const double up = run.loss();
      x = old - 0x1p-7f;
      const double down = run.loss();
      x = old;
      EXPECT_NEAR(gradients[at], (up - down) * 0x1p6, 2e-3 * (1 + std::abs(gradients[at])))
          << v.name << " " << i;
    }
  }
  EXPECT_EQ(at, gradients.size());
  EXPECT_TRUE(run.graph().find("table#grad") && run.graph().find("dec.table#grad"));
}

// Two passes add up, at every level; the shared table has two writers in each.
TEST(AttentionGraph, LevelsAgreeAndPassesAddUp) {
  GraphRun ref(ref_kernels());
  const double loss = ref.loss();
  const std::vector<float> want = gradients_of(ref);
  EXPECT_EQ(testing::writers(ref.graph(), "table#grad").size(), 2u);
  for (const char* level : available_levels()) {
    GraphRun run(*find_kernels(level), 2);
    EXPECT_NEAR(run.loss(), 2 * loss, 1e-5) << level;
    const std::vector<float> got = gradients_of(run);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], 2 * want[i], 2e-5 * (1 + std::abs(want[i]))) << level << " " << i;
    }
  }
}

}  // namespace
}  // namespace weft
