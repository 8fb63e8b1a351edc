// tests/dist/columns_test.cpp: weights stored as (in, out), and as thirds of a stored tensor by
// columns (as GPT-2's c_attn), in several layouts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gelu.h"
#include "graph/ops/head.h"
#include "graph/ops/linear.h"
#include "graph/ops/rmsnorm.h"
#include "model/traced_inputs.h"
#include "tensor/names.h"
#include "tests/dist/layouts.h"
#include "tests/dist/plain_traits.h"

namespace weft::testing {
namespace {

const HeadShape kHeads{4, 4, 8};
constexpr WeightOrder kOrder = WeightOrder::kInOut;

class ColumnsModel : public Model {
 public:
  static constexpr int64_t kVocab = 101, kWidth = 32, kInner = 48;

  const char* family() const override { return "columns"; }
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
    const Ref embed = g.parameter("embed", {kVocab, kWidth});
    const auto norm = [&](Ref x, const char* name) {
      return ops::rmsnorm(g, x, Ref{}, g.parameter(name, {kWidth}), 1e-6f).y;
    };
    const Ref x = norm(ops::embedding(g, in[names::kIds], embed, -1), "norm.0");
    std::vector<Ref> weights, biases;
    for (const std::string part : {"q", "k", "v"}) {
      weights.push_back(g.parameter(part, {kWidth, kWidth}));
      biases.push_back(g.parameter(part + ".bias", {kWidth}));
    }
    const Ref attended = ops::attention(g, {.values = {ops::linear(g, x, weights, biases, kOrder)},
                                            .heads = kHeads,
                                            .lengths = in[names::kLengths]});
    const Ref y = norm(ops::linear(g, attended, {g.parameter("o", {kWidth, kWidth})},
                                   {g.parameter("o.bias", {kWidth})}, kOrder),
                       "norm.1");
    const Ref up = ops::gelu(g,
                             ops::linear(g, y, {g.parameter("up", {kWidth, kInner})},
                                         {g.parameter("up.bias", {kInner})}, kOrder),
                             true);
    const Ref down = ops::linear(g, up, {g.parameter("down", {kInner, kWidth})},
                                 {g.parameter("down.bias", {kWidth})}, kOrder);
    return ops::head_loss(g, norm(down, "norm.2"), embed, in[names::kTargets],
                          o.batch * o.positions);
  }
  Ref trace_generate(Graph*, const TraceOptions&) const override { return {}; }
  void fill_constants(const Graph&,
                      const std::function<void*(const std::string&)>&) const override {}
  std::vector<ParameterSpec> parameters() const override {
    Graph graph;
    trace_loss(&graph, {.batch = 1, .positions = 1});
    std::vector<ParameterSpec> specs;
    for (Ref r : graph.of_kind(ValueKind::kParameter)) {
      const std::string& name = graph[r].name;
      const bool is_norm = name.starts_with("norm");
      specs.push_back({name,
                       graph[r].shape,
                       {is_norm ? InitRule::Kind::kOnes : InitRule::Kind::kNormal, 0.2},
                       cut_of(name),
                       stored(name)});
    }
    return specs;
  }

 private:
  static CutRule cut_of(const std::string& name) {
    if (name == "embed") return {0, 1, true, false, "vocabulary"};
    for (const std::string part : {"q", "k", "v"}) {
      if (name == part) return {1, kHeads.head_dim, false, false, "attention heads"};
      if (name == part + ".bias") return {0, kHeads.head_dim, false, false, "attention heads"};
    }
    if (name == "o") return {0, kHeads.head_dim, false, false, "attention heads"};
    if (name == "up") return {1, 1, false, false, "channels"};
    if (name == "up.bias" || name == "down") return {0, 1, false, false, "channels"};
    return {};
  }
  static StoredAs stored(const std::string& name) {
    const size_t part = std::string("qkv").find(name[0]);
    const auto begin = static_cast<int64_t>(part) * kWidth;
    if (name.size() == 1 && part < 3) return {"c_attn", {kWidth, 3 * kWidth}, {0, begin}};
    if (name.ends_with(".bias") && name.size() == 6 && part < 3)
      return {"c_attn.bias", {3 * kWidth}, {begin}};
    return {};
  }
};

std::unique_ptr<Model> make_columns(const Json&, const ModelOverrides&) {
  return std::make_unique<ColumnsModel>();
}
const Family kColumnsFamilies[] = {{"Columns", "columns", make_columns, plain_traits}};

MeshRun columns_run(const char* mode, const char* precision) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Columns"]})", "config");
  run.families = kColumnsFamilies;
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.data.seq_length = 12;
  run.config.parallel.mode = mode;
  for (uint64_t s = 0; s < 6; ++s)
    run.batches.push_back(random_batch(8, 12, ColumnsModel::kVocab, 70 + s % 2));
  run.eval = random_batch(7, 12, ColumnsModel::kVocab, 9);
  return run;
}

// One rank's tensors have the names and shapes of the stored ones.
LayoutRun columns_layouts(const char* mode, const char* precision, const Compare& same) {
  return {fmt::format("columns_{}_{}", mode, precision),
          [=] { return columns_run(mode, precision); }, same,
          [=](const MeshResult& one) {
            EXPECT_LT(one.losses[5], one.losses[1]);
            EXPECT_EQ(one.tensors.count(*precision == 'f' ? "c_attn" : "c_attn#master"), 1u);
            EXPECT_EQ(one.tensors.count("q"), 0u);
          }};
}
INSTANTIATE_TEST_SUITE_P(
    Columns, Layouts,
    ::testing::ValuesIn(layout_cases(
        {columns_layouts("exact", "fp32", expect_same_bits),
         columns_layouts("exact", "bf16", expect_same_bits),
         columns_layouts("fast", "fp32", within_absolute(2e-5))},
        {{2, 2, "zero3", 2}, {2, 1, "zero1"}, {1, 2, "none"}, {1, 4, "none"}, {4, 1, "zero2", 2}})),
    layout_name);

TEST(Columns, AGpuHasTheSameLosses) {
  MeshRun gpu = columns_run("fast", "fp32");
  const MeshResult& one = train_once("columns_fast_fp32", gpu);
  gpu.backend = "cuda_emulated";
  gpu.batches.resize(2);
  const MeshResult emulated = train_at(gpu, {1, 1, "none"});
  for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(emulated.losses[s], one.losses[s], 2e-5);
}

}  // namespace
}  // namespace weft::testing
