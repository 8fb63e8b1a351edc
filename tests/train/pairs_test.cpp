// tests/train/pairs_test.cpp: batches of source and target through a model that reads both, with
// plans by the lengths of the two.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "graph/ops/embedding.h"
#include "graph/ops/head.h"
#include "graph/ops/linear.h"
#include "kernel/kernels.h"
#include "model/traced_inputs.h"
#include "planning/graphs.h"
#include "tensor/names.h"
#include "tests/engine_step.h"
#include "text/tokenizer.h"
#include "train/engine.h"

namespace weft {
namespace {

constexpr int64_t kVocab = 300, kWidth = 16;
const HeadShape kHeads{2, 2, 8};

// One attention of the target to itself, one to the embedded source.
class PairModel : public Model {
 public:
  const char* family() const override { return "pair"; }
  int64_t vocab_size() const override { return kVocab; }
  int64_t max_positions() const override { return 512; }
  double dropout() const override { return 0; }
  std::vector<InputSpec> inputs(const TraceOptions&) const override {
    const std::vector<Dim> target = {Dim::kRows, Dim::kTarget}, source = {Dim::kRows, Dim::kSource};
    return {{names::kIds, target, Dtype::kI32, 0},
            {names::kTargets, target, Dtype::kI32, -1},
            {names::kLengths, {Dim::kRows}, Dtype::kI32, 0},
            {names::kSourceIds, source, Dtype::kI32, 0},
            {names::kSourceLengths, {Dim::kRows}, Dtype::kI32, 0}};
  }
  Ref trace_loss(Graph* graph, const TraceOptions& o) const override {
    Builder g(graph, o.compute);
    const TracedInputs in(&g, inputs(o), o);
    const Ref embed = g.parameter("embed", {kVocab, kWidth});
    const auto product = [&](Ref x, const char* name, int64_t rows) {
      return ops::linear(g, x, {g.parameter(name, {rows, kWidth})}, {});
    };
    const Ref source = ops::embedding(g, in[names::kSourceIds], embed, -1);
    Ref y = ops::embedding(g, in[names::kIds], embed, -1);
    y = ops::attention(g, {.values = {product(y, "self", 3 * kWidth)},
                           .heads = kHeads,
                           .lengths = in[names::kLengths]});
    y = ops::attention(
        g, {.layout = QkvLayout::kQAndKv,
            .values = {product(y, "cross.q", kWidth), product(source, "cross.kv", 2 * kWidth)},
            .heads = kHeads,
            .lengths = in[names::kLengths],
            .source_lengths = in[names::kSourceLengths],
            .causal = false});
    return ops::head_loss(g, y, embed, in[names::kTargets], o.batch * o.positions);
  }
  Ref trace_generate(Graph*, const TraceOptions&) const override { return {}; }
  void fill_constants(const Graph&,
                      const std::function<void*(const std::string&)>&) const override {}
  std::vector<ParameterSpec> parameters() const override {
    Graph graph;
    trace_loss(&graph, {.batch = 1, .positions = 1, .source_positions = 1});
    std::vector<ParameterSpec> specs;
    for (Ref r : graph.of_kind(ValueKind::kParameter))
      specs.push_back({graph[r].name, graph[r].shape, {InitRule::Kind::kNormal, 0.3}, {}});
    return specs;
  }
};

RunConfig config_of(const char* layout) {
  RunConfig c;
  c.data.source = "{q}";
  c.data.target = "{a}";
  c.data.layout = layout;
  c.data.seq_length = 96;
  c.data.target_length = 48;
  c.data.shuffle = false;
  c.data.eval_fraction = 0.5;  // an evaluation plan too
  c.train.global_batch = 4;
  c.train.micro_batch = 2;
  return c;
}

std::string pair_text(size_t question, size_t answer) {
  return R"({"q": ")" + std::string(question, 'q') + R"(", "a": ")" + std::string(answer, 'a') +
         "\"}\n";
}

// The stream's batches of six pairs, and their losses.
TEST(Pairs, PassesOfTheirOwnLengthsOnBothSides) {
  const PairModel model;
  EXPECT_TRUE(reads_source(model));
  const std::string text =
      pair_text(80, 5) + pair_text(3, 20) + pair_text(12, 40) + pair_text(20, 2);
  const auto rows = rows_in_memory(text, RowFormat::kJsonLines, "t");
  const auto tokenizer = make_bytes_tokenizer();
  std::map<std::string, double> losses, evals;
  for (const char* layout : {"pad", "dynamic"}) {
    const RunConfig c = config_of(layout);
    EXPECT_EQ(longest_lengths(c, model), (Lengths{48, 96}));
    StreamOptions options;
    options.kind = ModelKind::kEncoderDecoder;
    options.decoder_start_id = 0;
    options.global_batch = 4;
    options.rows_per_pass = 2;
    options.vocab_size = kVocab;
    BatchStream stream(c.data, *rows, *tokenizer, options);
    Batch batch;
    ASSERT_TRUE(stream.next(batch));
    ASSERT_GT(batch.target_tokens, 0);
    if (*layout == 'd') {
      EXPECT_EQ(batch.pass_lengths, (std::vector<Lengths>{{32, 80}, {48, 32}}));
    }
    Ranks alone{Layout{}};
    Engine engine(c, model, &alone, cpu_kernels(), 1);
    engine.init_weights(3);
    losses[layout] = run_passes(engine, batch).loss.value();
    evals[layout] = engine.eval_loss(batch).loss.value();
    EXPECT_GT(run_update(engine, 1e-3, 1), 0);
    // The source is read: another token of it, another loss.
    batch.values("source_ids")[0] ^= 1;
    EXPECT_NE(engine.eval_loss(batch).loss.value(), evals[layout]);
  }
  EXPECT_GT(losses["pad"], 0);
  EXPECT_EQ(losses["pad"], losses["dynamic"]);
  EXPECT_EQ(evals["pad"], losses["pad"]);
  EXPECT_EQ(evals["dynamic"], losses["pad"]);
}

// A batch without a required input is a bug that is named.
TEST(Pairs, ABatchWithoutTheSourceIsRejected) {
  const PairModel model;
  const RunConfig c = config_of("pad");
  Ranks alone{Layout{}};
  Engine engine(c, model, &alone, cpu_kernels(), 1);
  engine.init_weights(3);
  Batch batch;
  batch.num_rows = 4;
  batch.padded = {48, 96};
  for (const char* name : {"ids", "targets"}) batch.reset(name, 48, 1);
  batch.reset("lengths", 1, 48);
  try {
    engine.start_passes(batch);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const BugError& e) {
    EXPECT_NE(std::string(e.what()).find("source_ids"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft
