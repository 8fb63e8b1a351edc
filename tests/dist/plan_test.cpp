// tests/dist/plan_test.cpp: `weft plan`'s numbers of a layout match what the ranks allocate and do.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "planning/plan_report.h"
#include "tests/dist/mesh_run.h"
#include "train/engine.h"

namespace weft::testing {
namespace {

// 12 heads, 2 key/value heads (copied at tp 4), an odd vocabulary.
Json model_config(int kv_heads) {
  Json c = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 12,
      "vocab_size": 1003, "tie_word_embeddings": false})",
                      "config");
  c.set("num_key_value_heads", kv_heads);
  return c;
}

struct PlanCase {
  int dp, tp;
  const char* shard;
  int micro = 1;
  const char* mode = "fast";
  const char* precision = "fp32";
  int exact_tp = 0;
  int rows = 8, kv_heads = 2;
};

constexpr int kPlanSteps = 2;

MeshRun run_of(const PlanCase& p) {
  MeshRun run;
  run.model = model_config(p.kv_heads);
  run.config.train.global_batch = p.rows;
  run.config.train.micro_batch = p.micro;
  run.config.train.precision = p.precision;
  run.config.data.seq_length = 12;
  run.config.parallel.dp = p.dp;
  run.config.parallel.tp = p.tp;
  run.config.parallel.shard = p.shard;
  run.config.parallel.mode = p.mode;
  run.config.parallel.exact_tp = p.exact_tp;
  run.config.launch.threads = 1;
  for (int s = 0; s < kPlanSteps; ++s) {
    Batch b = random_batch(p.rows, 12, 1003, 40 + static_cast<uint64_t>(s));
    std::ranges::copy(b.values("ids"), b.values("targets").begin());  // a target everywhere
    b.target_tokens = p.rows * 12;
    run.batches.push_back(std::move(b));
  }
  return run;
}

std::string to_text(const PlanCase& p) {
  return fmt::format("dp={} tp={} {} micro={} {} {} exact_tp={}", p.dp, p.tp, p.shard, p.micro,
                     p.mode, p.precision, p.exact_tp);
}

PlanReport plan_of(const MeshRun& run) {
  return plan_layout(run.config, *make_model(run.model, {}), cpu_kernels(), std::nullopt);
}

MeshResult::Counted planned_wire(const PlanReport& report) {
  MeshResult::Counted all;
  for (const WireItem& item : report.wire) {
    auto& axis = item.axis == Axis::kTensor ? all.tensor : all.data;
    axis[static_cast<size_t>(item.op)].calls += item.calls * kPlanSteps;
    axis[static_cast<size_t>(item.op)].bytes += item.bytes * kPlanSteps;
  }
  return all;
}

void expect_same(const std::array<CommCount, kNumCommOps>& planned,
                 const std::array<CommCount, kNumCommOps>& counted, const char* axis) {
  for (int op = 0; op < kNumCommOps; ++op) {
    const auto at = static_cast<size_t>(op);
    const char* name = comm_op_name(static_cast<CommOp>(op));
    EXPECT_EQ(planned[at].calls, counted[at].calls) << axis << " " << name;
    EXPECT_EQ(planned[at].bytes, counted[at].bytes) << axis << " " << name;
  }
}

// Nodes of the plan times passes, by op.
std::map<Op, int64_t> planned_calls(const MeshRun& run, const Layout& layout, int rank) {
  const auto plans =
      make_engine_plans(run.config, *make_model(run.model, {}), layout, rank, cpu_kernels(), 1);
  std::map<Op, int64_t> calls;
  for (const Node& node : plans->train.graph.pass) {
    calls[node.op] += kPlanSteps * (node.run.last_pass_only ? 1 : run.config.num_passes());
  }
  for (const Node& node : plans->train.graph.finish) calls[node.op] += kPlanSteps;
  return calls;
}

class PlanOfLayout : public ::testing::TestWithParam<PlanCase> {};

TEST_P(PlanOfLayout, MatchesWhatTheRanksAllocateAndDo) {
  const PlanCase& place = GetParam();
  const MeshRun run = run_of(place);
  const PlanReport report = plan_of(run);
  const MeshResult result = train_mesh(run);
  const int n = place.dp * place.tp;
  ASSERT_EQ(result.arena_bytes.size(), static_cast<size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const RankPlan& plan = report.of_rank(rank);
    EXPECT_EQ(plan.memory.total(), result.arena_bytes[at]) << to_text(place) << " rank " << rank;
    EXPECT_EQ(plan.flops, result.pass_flops[at] * static_cast<double>(run.config.num_passes()));
    EXPECT_EQ(planned_calls(run, report.layout, rank), result.calls[at]) << to_text(place);
    const MemoryParts& m = plan.memory;
    for (int64_t part :
         {m.parameters, m.gradients, m.states, m.activations, m.communication, m.other}) {
      EXPECT_GE(part, 0) << to_text(place);
    }
  }
  const MeshResult::Counted planned = planned_wire(report);
  expect_same(planned.tensor, result.wire[0].tensor, "tp");
  expect_same(planned.data, result.wire[0].data, "dp");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PlanOfLayout,
    ::testing::Values(PlanCase{1, 1, "none"}, PlanCase{2, 1, "none"}, PlanCase{4, 1, "none", 2},
                      PlanCase{2, 1, "zero1"}, PlanCase{4, 1, "zero1", 2}, PlanCase{2, 1, "zero2"},
                      PlanCase{4, 1, "zero2", 2}, PlanCase{2, 1, "zero3"},
                      PlanCase{4, 1, "zero3", 2}, PlanCase{1, 2, "none"}, PlanCase{1, 4, "none"},
                      PlanCase{2, 2, "zero1"}, PlanCase{2, 2, "zero3"},
                      PlanCase{2, 4, "zero2", 1, "fast", "bf16"},
                      PlanCase{2, 1, "none", 1, "exact"}, PlanCase{2, 2, "zero1", 1, "exact"},
                      PlanCase{4, 1, "zero2", 1, "exact"},
                      PlanCase{2, 2, "zero3", 1, "exact", "bf16"},
                      PlanCase{1, 1, "none", 1, "exact", "fp32", 4},
                      PlanCase{1, 4, "none", 1, "exact", "bf16", 4},
                      PlanCase{2, 2, "zero3", 1, "exact", "fp32", 4},
                      PlanCase{2, 4, "zero2", 1, "exact", "fp32", 4},
                      // dp that owns no groups of rows: four groups of three, and one pass.
                      PlanCase{3, 1, "none", 1, "exact", "fp32", 0, 12},
                      PlanCase{3, 1, "zero1", 1, "exact", "bf16", 0, 12},
                      PlanCase{6, 1, "zero2", 1, "exact", "fp32", 0, 12},
                      PlanCase{3, 2, "zero3", 1, "exact", "fp32", 0, 12},
                      PlanCase{3, 2, "none", 1, "exact", "bf16", 4, 12},
                      PlanCase{3, 1, "none", 1, "exact", "fp32", 0, 3},
                      PlanCase{5, 1, "zero1", 1, "exact", "fp32", 0, 5},
                      // 3 key/value heads that tp does not divide.
                      PlanCase{1, 2, "none", 4, "fast", "fp32", 0, 8, 3},
                      PlanCase{1, 4, "none", 4, "fast", "fp32", 0, 8, 3},
                      PlanCase{2, 2, "zero1", 1, "fast", "bf16", 0, 8, 3},
                      PlanCase{2, 4, "zero3", 2, "fast", "fp32", 0, 8, 3}),
    [](const auto& of) {
      const PlanCase& p = of.param;
      return fmt::format("dp{}_tp{}_{}_micro{}_{}_{}_leaves{}_rows{}_kv{}", p.dp, p.tp, p.shard,
                         p.micro, p.mode, p.precision, p.exact_tp, p.rows, p.kv_heads);
    });

// The head exchanges nothing for tokens without a target: only there the plan is an upper bound.
TEST(PlanWire, BoundsTheHeadAndIsExactElsewhere) {
  MeshRun run = run_of({1, 2, "none"});
  for (Batch& b : run.batches) {
    for (size_t i = 0; i < b.values("targets").size(); i += 3) b.values("targets")[i] = -1;
    b.target_tokens = 8 * 12 * 2 / 3;
  }
  const MeshResult::Counted planned = planned_wire(plan_of(run));
  const MeshResult::Counted counted = train_mesh(run).wire[0];
  const auto bytes = [](const MeshResult::Counted& c, CommOp op) {
    return c.tensor[static_cast<size_t>(op)].bytes;
  };
  EXPECT_EQ(bytes(counted, CommOp::kAllGather) * 3, bytes(planned, CommOp::kAllGather) * 2);
  EXPECT_EQ(bytes(counted, CommOp::kAllReduce), bytes(planned, CommOp::kAllReduce));
}

// What ZeRO promises, for a model whose parameters fill whole cells.
TEST(PlanParts, FallWithTheShard) {
  const auto parts = [](const char* shard) {
    return plan_of(run_of({4, 1, shard})).plans[0].memory;
  };
  const MemoryParts none = parts("none"), zero1 = parts("zero1"), zero2 = parts("zero2"),
                    zero3 = parts("zero3");
  EXPECT_EQ(zero1.parameters, none.parameters);
  EXPECT_EQ(zero1.gradients, none.gradients);
  EXPECT_NEAR(static_cast<double>(zero1.states), static_cast<double>(none.states) / 4,
              0.05 * static_cast<double>(none.states));
  EXPECT_EQ(zero2.parameters, none.parameters);
  EXPECT_EQ(zero2.gradients * 4, none.gradients);
  EXPECT_EQ(zero2.states, zero1.states);
  EXPECT_EQ(zero3.parameters * 4, none.parameters);
  EXPECT_EQ(zero3.gradients, zero2.gradients);
  EXPECT_EQ(zero3.states, zero1.states);
  EXPECT_EQ(none.communication, 0);
  EXPECT_GT(zero3.communication, zero2.communication);
}

TEST(PlanParts, FlopsFallWithBothAxes) {
  const auto flops = [](int dp, int tp, const char* mode) {
    return plan_of(run_of({dp, tp, "none", 1, mode})).plans[0].flops;
  };
  for (const char* mode : {"fast", "exact"}) {
    const double one = flops(1, 1, mode);
    EXPECT_DOUBLE_EQ(flops(2, 1, mode), one / 2);
    EXPECT_DOUBLE_EQ(flops(4, 1, mode), one / 4);
    // The vocabulary of 1,003 is cut into 512 and 491: rank 0 has a little more than half.
    EXPECT_NEAR(flops(1, 2, mode) / one, 0.5, 0.01) << mode;
    EXPECT_NEAR(flops(2, 2, mode) / one, 0.25, 0.01) << mode;
  }
}

// Every rank planned by itself against its class.
TEST(RankClasses, RepresentAllTheirRanks) {
  for (const PlanCase& place :
       {PlanCase{8, 2, "zero1"}, PlanCase{8, 2, "zero3"}, PlanCase{4, 4, "none"},
        PlanCase{4, 4, "none", 1, "exact", "fp32", 4},
        PlanCase{6, 2, "none", 1, "exact", "fp32", 0, 12},
        PlanCase{4, 4, "none", 1, "fast", "fp32", 0, 8, 3}}) {
    const MeshRun run = run_of(place);
    const PlanReport report = plan_of(run);
    const auto model = make_model(run.model, {});
    EXPECT_LT(report.plans.size(), static_cast<size_t>(place.dp * place.tp)) << to_text(place);
    for (int rank = 0; rank < place.dp * place.tp; ++rank) {
      const auto own = make_engine_plans(run.config, *model, report.layout, rank, cpu_kernels(), 1);
      EXPECT_EQ(memory_parts(own->train, own->layout), report.of_rank(rank).memory)
          << to_text(place) << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace weft::testing
