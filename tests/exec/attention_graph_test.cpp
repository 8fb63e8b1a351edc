// tests/exec/attention_graph_test.cpp: every form of attention in a graph, run, with gradients
// against differences of the loss.
#include <gtest/gtest.h>

#include "base/exact_sum.h"
#include "base/random.h"
#include "exec/executor.h"
#include "graph/autodiff.h"
#include "optim/updates.h"
#include "tests/backends.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

constexpr int64_t kB = 2, kT = 5, kS = 7, kHeads = 2, kHeadDim = 4, kC = kHeads * kHeadDim;
constexpr int64_t kVocab = 11, kBuckets = 8;
const HeadShape kShape{kHeads, kHeads, kHeadDim};

// An encoder whose two layers share a relative table; a decoder with a causal table and a window
// over separate q, k and v, one with ALiBi over interleaved heads, then attention to the encoder
// over q and kv. packed: rows have segments, and every attention has dropout; the last one has
// every optional input.
Graph encoder_decoder(bool packed) {
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
  Ref positions, source_positions, rows;
  if (packed) {
    positions = g.input("positions", {kB, kT}, Dtype::kI32);
    source_positions = g.input("source_positions", {kB, kS}, Dtype::kI32);
    rows = g.input("rows", {kB, 2}, Dtype::kI64);
  }
  const auto dropout = [&](int64_t site) {
    return packed ? DropoutRule{.rate = 0.3, .seed = 9, .site = site, .rows = rows} : DropoutRule{};
  };
  const Ref embed = weight("embed", kVocab);
  const Ref table = g.parameter("table", {kBuckets, kHeads});
  Ref x = ops::embedding(g, source_ids, embed, -1);
  for (const char* layer : {"0", "1"}) {
    const Ref qkv = ops::linear(g, x, {weight(fmt::format("enc.{}.qkv", layer), 3 * kC)}, {});
    x = ops::attention(g, {.values = {qkv},
                           .heads = kShape,
                           .lengths = source_lengths,
                           .positions = source_positions,
                           .causal = false,
                           .scale = 1.0f,
                           .bias = ScoreBias::kRelative,
                           .table = table,
                           .max_distance = 6,
                           .dropout = dropout(layer[0] - '0')});
  }
  Ref y = ops::embedding(g, ids, embed, -1);
  y = ops::attention(g, {.layout = QkvLayout::kSeparate,
                         .values = {ops::linear(g, y, {weight("dec.q", kC)}, {}),
                                    ops::linear(g, y, {weight("dec.k", kC)}, {}),
                                    ops::linear(g, y, {weight("dec.v", kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .positions = positions,
                         .window = 3,
                         .bias = ScoreBias::kRelative,
                         .table = g.parameter("dec.table", {4, kHeads}),
                         .max_distance = 5,
                         .dropout = dropout(2)});
  y = ops::attention(g, {.layout = QkvLayout::kInterleaved,
                         .values = {ops::linear(g, y, {weight("dec.qkv", 3 * kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .positions = positions,
                         .bias = ScoreBias::kAlibi,
                         .dropout = dropout(3)});
  y = ops::attention(g, {.layout = QkvLayout::kQAndKv,
                         .values = {ops::linear(g, y, {weight("cross.q", kC)}, {}),
                                    ops::linear(g, x, {weight("cross.kv", 2 * kC)}, {})},
                         .heads = kShape,
                         .lengths = lengths,
                         .positions = positions,
                         .source_lengths = source_lengths,
                         .source_positions = source_positions,
                         .causal = false,
                         .bias = packed ? ScoreBias::kRelative : ScoreBias::kNone,
                         .table = packed ? g.parameter("cross.table", {kBuckets, kHeads}) : Ref{},
                         .max_distance = 6,
                         .dropout = dropout(4)});
  add_backward(&graph, ops::head_loss(g, y, embed, targets, 4), Dtype::kF32);
  add_updates(&graph, find_optimizer("adamw"), {}, {});  // a reader, which keeps gradients alive
  return graph;
}

class GraphRun {
 public:
  GraphRun(const TestBackend& backend, bool packed, int passes = 1)
      : plan_(make_plan(encoder_decoder(packed), {backend.kernels, 1, passes})),
        layout_(layout_of(plan_)),
        arena_(layout_.total_bytes(), backend.device),
        pool_(1),
        executor_(plan_, layout_, arena_, &pool_),
        passes_(passes),
        packed_(packed) {
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
    return executor_.read<ExactSum>("loss_sum").value();
  }
  float* at(const std::string& name) const { return executor_.at<float>(name); }
  const Graph& graph() const { return plan_.graph; }
  std::string skip;  // an input that is left zero

 private:
  static ArenaLayout layout_of(const Plan& plan) {
    ArenaLayout layout;
    layout.add(plan);
    return layout;
  }
  template <typename T>
  void feed(const std::string& name, std::initializer_list<T> values) {
    std::fill_n(executor_.input<T>(name), values.size(), T{});
    if (name != skip) std::copy(values.begin(), values.end(), executor_.input<T>(name));
  }
  void feed() {
    for (int64_t i = 0; i < kB * kS; ++i) {
      executor_.input<int32_t>("source_ids")[i] = static_cast<int32_t>(i * 7 % kVocab);
    }
    for (int64_t i = 0; i < kB * kT; ++i) {
      executor_.input<int32_t>("ids")[i] = static_cast<int32_t>(i * 5 % kVocab);
      executor_.input<int32_t>("targets")[i] =
          i == 8 || i == 9 ? -1 : static_cast<int32_t>(i % kVocab);
    }
    feed<int32_t>("lengths", {kT, 3});
    feed<int32_t>("source_lengths", {4, kS});
    if (!packed_) return;
    // Two segments on each side; one of queries whose segment has one key.
    feed<int32_t>("positions", {0, 1, 0, 1, 2, 0, 1, 0, 0, 0});
    feed<int32_t>("source_positions", {0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 3, 0, 1, 2});
    feed<int64_t>("rows", {0, 4, 1, 17});
  }

  Plan plan_;
  ArenaLayout layout_;
  Arena arena_;
  ThreadPool pool_;
  Executor executor_;
  int passes_;
  bool packed_;
};

const TestBackend kRef = {&ref_kernels(), &host_device()};

std::vector<float> gradients_of(const GraphRun& run) {
  std::vector<float> all;
  for (const Update& u : run.graph().updates) {
    const Value& v = run.graph()[u.gradient];
    const float* d = run.at(v.name);
    all.insert(all.end(), d, d + num_elements(v.shape));
  }
  return all;
}

class AttentionGraph : public ::testing::TestWithParam<bool> {};  // packed
INSTANTIATE_TEST_SUITE_P(, AttentionGraph, ::testing::Bool(), [](const auto& c) {
  return std::string(c.param ? "SegmentsAndDropout" : "PlainRows");
});

TEST_P(AttentionGraph, GradientsAreTheDifferences) {
  GraphRun run(kRef, GetParam());
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

// Two passes add up, at every level and on an emulated GPU; the shared table has two writers in
// each.
TEST_P(AttentionGraph, BackendsAgreeAndPassesAddUp) {
  GraphRun ref(kRef, GetParam());
  const double loss = ref.loss();
  const std::vector<float> want = gradients_of(ref);
  EXPECT_EQ(testing::writers(ref.graph(), "table#grad").size(), 2u);
  for (const std::string& level : backend_names()) {
    if (level == "cuda") continue;  // its memory is not the host's
    GraphRun run(find_backend(level), GetParam(), 2);
    EXPECT_NEAR(run.loss(), 2 * loss, 1e-5) << level;
    const std::vector<float> got = gradients_of(run);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], 2 * want[i], 2e-5 * (1 + std::abs(want[i]))) << level << " " << i;
    }
  }
}

// Segments and dropout reach the kernels: without them the loss is another.
TEST(AttentionGraphInputs, SegmentsAndRowsHaveAnEffect) {
  GraphRun run(kRef, true);
  const double loss = run.loss();
  EXPECT_EQ(run.loss(), loss);
  for (const char* name : {"positions", "source_positions", "rows"}) {
    GraphRun other(kRef, true);
    other.skip = name;  // stays zero: every token is a segment, or another row is drawn for
    EXPECT_NE(other.loss(), loss) << name;
  }
}

}  // namespace
}  // namespace weft
