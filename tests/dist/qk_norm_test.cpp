// tests/dist/qk_norm_test.cpp: a layer of Gemma's kind (norms with an offset, norms of q's and k's
// heads, geglu) in several layouts.
#include "graph/ops/qk_norm.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "graph/ops/embedding.h"
#include "graph/ops/geglu.h"
#include "graph/ops/head.h"
#include "graph/ops/linear.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/rope.h"
#include "model/rope.h"
#include "model/traced_inputs.h"
#include "tensor/names.h"
#include "tests/dist/layouts.h"
#include "tests/dist/plain_traits.h"

namespace weft::testing {
namespace {

class NormedHeads : public Model {
 public:
  static constexpr int64_t kVocab = 101, kWidth = 32, kInner = 48, kHeadDim = 8;
  static constexpr float kEps = 1e-6f;

  NormedHeads(int64_t heads, int64_t kv_heads, int64_t weight_offset, bool is_shared)
      : heads_{heads, kv_heads, kHeadDim},
        offset_(static_cast<int>(weight_offset)),
        is_shared_(is_shared) {}
  const char* family() const override { return "normed_heads"; }
  int64_t vocab_size() const override { return kVocab; }
  int64_t max_positions() const override { return 64; }
  double dropout() const override { return 0; }
  std::vector<InputSpec> inputs(const TraceOptions&) const override {
    return {{names::kIds, {Dim::kRows, Dim::kTarget}, Dtype::kI32, 0},
            {names::kTargets, {Dim::kRows, Dim::kTarget}, Dtype::kI32, -1},
            {names::kLengths, {Dim::kRows}, Dtype::kI32, 0}};
  }
  Ref trace_loss(Graph* graph, const TraceOptions& o) const override {
    Builder g(graph, o.compute);
    const TracedInputs in(&g, inputs(o), o);
    const Ref cosine = g.constant("cosine", {o.positions, kHeadDim / 2}, Dtype::kF32);
    const Ref sine = g.constant("sine", {o.positions, kHeadDim / 2}, Dtype::kF32);
    const Ref embed = g.parameter("embed", {kVocab, kWidth});
    const auto norm = [&](Ref x, Ref residual, const char* name) {
      return ops::rmsnorm(g, x, residual, g.parameter(name, {kWidth}), kEps, offset_);
    };
    const Ref x = ops::embedding(g, in[names::kIds], embed, -1);
    g.set_layer(0);
    const int64_t q = heads_.heads * kHeadDim, kv = heads_.kv_heads * kHeadDim;
    Ref qkv = ops::linear(g, norm(x, Ref{}, "norm.0").y,
                          {g.parameter("q", {q, kWidth}), g.parameter("k", {kv, kWidth}),
                           g.parameter("v", {kv, kWidth})},
                          {});
    qkv = ops::qk_norm(g, qkv, g.parameter("norm.q", {kHeadDim}), g.parameter("norm.k", {kHeadDim}),
                       heads_, kEps, offset_);
    qkv = ops::rope(g, qkv, cosine, sine, Ref{}, heads_);
    const Ref attended =
        ops::attention(g, {.values = {qkv}, .heads = heads_, .lengths = in[names::kLengths]});
    const auto middle =
        norm(ops::linear(g, attended, {g.parameter("o", {kWidth, q})}, {}), x, "norm.1");
    const Ref gate_up = ops::linear(
        g, middle.y, {g.parameter("gate", {kInner, kWidth}), g.parameter("up", {kInner, kWidth})},
        {});
    const Ref down =
        ops::linear(g, ops::geglu(g, gate_up), {g.parameter("down", {kWidth, kInner})}, {});
    const Ref out = norm(down, middle.sum, "norm.2").y;
    g.set_layer(-1);
    return ops::head_loss(g, out, embed, in[names::kTargets], o.batch * o.positions);
  }
  Ref trace_generate(Graph*, const TraceOptions&) const override { return {}; }
  void fill_constants(const Graph& graph,
                      const std::function<void*(const std::string&)>& data) const override {
    fill_rope(rope_frequencies({}, kHeadDim), graph[*graph.find("cosine")].shape[0],
              static_cast<float*>(data("cosine")), static_cast<float*>(data("sine")));
  }
  std::vector<ParameterSpec> parameters() const override {
    Graph graph;
    trace_loss(&graph, {.batch = 1, .positions = 1});
    std::vector<ParameterSpec> specs;
    for (Ref r : graph.of_kind(ValueKind::kParameter)) {
      const std::string& name = graph[r].name;
      const bool is_one = name.starts_with("norm") && offset_ == 0;
      specs.push_back({name,
                       graph[r].shape,
                       {is_one ? InitRule::Kind::kOnes : InitRule::Kind::kNormal, 0.2},
                       cut_of(name)});
    }
    return specs;
  }

 private:
  CutRule cut_of(const std::string& name) const {
    if (name == "embed") return {0, 1, true, false, "vocabulary"};
    if (name == "q") return {0, kHeadDim, false, false, "attention heads"};
    if (name == "k" || name == "v") return {0, kHeadDim, false, true, "key/value heads"};
    if (name == "o") return {1, kHeadDim, false, false, "attention heads"};
    if (name == "gate" || name == "up") return {0, 1, false, false, "channels"};
    if (name == "down") return {1, 1, false, false, "channels"};
    if (is_shared_ && (name == "norm.q" || name == "norm.k")) return shared_by_heads(kHeadDim);
    return {};
  }

  HeadShape heads_;
  int offset_;
  bool is_shared_;
};

std::unique_ptr<Model> make_normed_heads(const Json& config, const ModelOverrides&) {
  return std::make_unique<NormedHeads>(config.at("heads").as_int(), config.at("kv_heads").as_int(),
                                       config.at("offset").as_int(), config.at("shared").as_bool());
}
const Family kNormedFamilies[] = {{"NormedHeads", "normed_heads", make_normed_heads, plain_traits}};

struct Heads {
  int heads, kv_heads, exact_tp = 0;
};

MeshRun qk_norm_run(const char* mode, const char* precision, const Heads& h, int offset,
                    bool is_shared = true) {
  MeshRun run;
  run.model = parse_json(fmt::format(R"({{"architectures": ["NormedHeads"], "heads": {},
      "kv_heads": {}, "offset": {}, "shared": {}}})",
                                     h.heads, h.kv_heads, offset, is_shared),
                         "config");
  run.families = kNormedFamilies;
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.data.seq_length = 12;
  run.config.parallel.mode = mode;
  run.config.parallel.exact_tp = h.exact_tp;
  for (uint64_t s = 0; s < 6; ++s)
    run.batches.push_back(random_batch(8, 12, NormedHeads::kVocab, 70 + s % 2));
  run.eval = random_batch(7, 12, NormedHeads::kVocab, 9);
  return run;
}

// Four pieces; with two key/value heads, tp 4 has copies of two ranks and of four.
std::vector<LayoutRun> qk_norm_exact_runs() {
  std::vector<LayoutRun> runs;
  for (const Heads& h : {Heads{4, 4}, Heads{8, 2, 4}}) {
    for (const int offset : {0, 1}) {
      for (const char* precision : {"fp32", "bf16"}) {
        runs.push_back({fmt::format("qk_norm_kv{}_offset{}_{}", h.kv_heads, offset, precision),
                        [=] { return qk_norm_run("exact", precision, h, offset); },
                        expect_same_bits,
                        [=](const MeshResult& one) {
                          EXPECT_LT(one.losses[5], one.losses[1]);
                          const char* name = *precision == 'f' ? "norm.q" : "norm.q#master";
                          EXPECT_EQ(one.tensors.count(name), 1u);
                        }});
      }
    }
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(QkNorm, Layouts,
                         ::testing::ValuesIn(layout_cases(qk_norm_exact_runs(), {{2, 2, "zero3", 2},
                                                                                 {2, 1, "zero1"},
                                                                                 {1, 2, "none"},
                                                                                 {1, 4, "none"},
                                                                                 {2, 2, "zero2"}})),
                         layout_name);

std::vector<float> floats_of(const MeshResult& result, const std::string& name) {
  const std::vector<std::byte>& bytes = result.tensors.at(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

constexpr const char* kQkNormCompared[] = {"norm.q", "norm.k", "norm.0", "gate", "k"};

// SGD: a gradient that lacks a rank's addend, or has one twice, moves the weights elsewhere.
MeshRun qk_norm_sgd_run(const Heads& h) {
  MeshRun run = qk_norm_run("fast", "fp32", h, 1);
  run.config.train.optimizer.name = "sgd";
  run.lr = 0.2;
  return run;
}

std::string qk_norm_sgd_name(const Heads& h) {
  return fmt::format("qk_norm_sgd_heads{}_kv{}", h.heads, h.kv_heads);
}

LayoutRun qk_norm_fast(const Heads& h) {
  return {qk_norm_sgd_name(h), [=] { return qk_norm_sgd_run(h); },
          [](const MeshResult& one, const MeshResult& other) {
            within_absolute(2e-5)(one, other);
            for (const char* name : kQkNormCompared) {
              const auto want = floats_of(one, name), got = floats_of(other, name);
              for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << name;
            }
          }};
}

// With three key/value heads ranks share one of them; with four on three ranks, the rank in the
// middle has none of its own, so that its buckets are smaller, and dp 8 cuts them elsewhere.
constexpr Heads kFourOnThreeRanks = {12, 4};
const std::vector<Heads> kHeadsOnTwoRanks = {{4, 4}, {4, 2}, {4, 1}, {12, 3}};

INSTANTIATE_TEST_SUITE_P(QkNormFast, Layouts, ::testing::ValuesIn([] {
                           std::vector<LayoutRun> runs;
                           for (const Heads& h : kHeadsOnTwoRanks) runs.push_back(qk_norm_fast(h));
                           return layout_cases(runs, {{2, 2, "zero3", 2},
                                                      {1, 2, "none"},
                                                      {2, 2, "zero1"},
                                                      {1, 4, "none"}});
                         }()),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(QkNormOnThreeRanks, Layouts,
                         ::testing::ValuesIn(layout_cases({qk_norm_fast(kFourOnThreeRanks)},
                                                          {{2, 3, "zero3", 2},
                                                           {1, 3, "none"},
                                                           {2, 3, "zero1"},
                                                           {8, 3, "zero1", 1}})),
                         layout_name);

TEST(QkNormLayouts, NormsAndWeightsLearn) {
  std::vector<Heads> all = kHeadsOnTwoRanks;
  all.push_back(kFourOnThreeRanks);
  for (const Heads& h : all) {
    const MeshRun run = qk_norm_sgd_run(h);
    const MeshResult& one = train_once(qk_norm_sgd_name(h), run);
    MeshRun start = run;
    start.lr = 0;
    start.batches.resize(1);
    const MeshResult before = train_at(start, {1, 1, "none"});
    for (const char* name : kQkNormCompared) {
      const auto ended = floats_of(one, name), began = floats_of(before, name);
      double moved = 0;
      for (size_t i = 0; i < ended.size(); ++i)
        moved = std::max(moved, std::abs(double{ended[i]} - double{began[i]}));
      EXPECT_GT(moved, 1e-3) << name << " of " << h.kv_heads << " did not learn";
    }
  }
}

TEST(QkNormLayouts, AGpuHasTheSameLosses) {
  MeshRun run = qk_norm_run("fast", "fp32", {4, 2}, 1);
  run.batches.resize(2);
  const MeshResult one = train_at(run, {1, 1, "none"});
  run.backend = "cuda_emulated";
  const MeshResult emulated = train_at(run, {1, 1, "none"});
  for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(emulated.losses[s], one.losses[s], 2e-5);
}

// Whole weights would get a gradient of one rank's heads alone: refused.
TEST(QkNormLayouts, WeightsThatAreNotSharedAreRefused) {
  const MeshRun run = qk_norm_run("fast", "fp32", {4, 2}, 1, false);
  EXPECT_THROW(train_at(run, {1, 2, "none"}), BugError);
}

}  // namespace
}  // namespace weft::testing
