// tests/parallel/graphs_test.cpp: the complete graphs of some ranks: any change must be intended.
#include <gtest/gtest.h>

#include "graph/autodiff.h"
#include "parallel/data_parallel.h"
#include "parallel/recompute.h"
#include "parallel/stack_parts.h"
#include "parallel/tensor_parallel.h"
#include "tests/golden_file.h"
#include "tests/graph/decoder_graph.h"
#include "tests/parallel/graph_text.h"

namespace weft {
namespace {

using testing::DecoderShape;

struct RankChoice {
  const char* name;
  TensorParallel tensor;
  DataParallel data;
  int64_t kv_heads = 2;
  bool tied = true;
  const char* frozen = "";
  Dtype compute = Dtype::kF32;
};

Cuts cuts_with_head(const DecoderShape& s) {
  Cuts made = {{"embed", {0, 1, true}}, {"head", {0, 1, true}}};
  for (const char* name : {"q", "k", "v", "q.bias", "k.bias", "v.bias"})
    made[fmt::format("0.{}", name)] = {0, s.head_dim};
  made["0.o"] = {1, s.head_dim};
  made["0.gate"] = made["0.up"] = {0, 1};
  made["0.down"] = {1, 1};
  return made;
}

// The passes as in planning/graphs.cpp; without the optimizer.
Graph graph_of(const RankChoice& c) {
  DecoderShape s;
  s.heads = 12;
  s.kv_heads = c.kv_heads;
  s.layers = 1;
  s.vocab = 200;
  s.bias = true;
  s.o_bias = true;
  s.tied = c.tied;
  s.compute = c.compute;
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, s);
  if (*c.frozen) testing::freeze(&graph, c.frozen);
  add_backward(&graph, losses, Dtype::kF32);
  recompute_cheap_values(&graph);
  apply_tensor_parallel(&graph, cuts_with_head(s), c.tensor);
  const auto buckets = apply_data_parallel(&graph, c.data);
  stack_parts(&graph);
  add_parameter_gathers(&graph, buckets, c.data);
  return graph;
}

const RankChoice kChoices[] = {
    {"one", {}, {}},
    {"one_frozen", {}, {}, 2, false, "norm"},
    {"tp2", {2, 1, 2, false}, {}, 2, false},
    {"tp4_copies", {4, 1, 4, false}, {}},
    {"tp2_spread", {2, 0, 2, false}, {}, 3},
    {"tp1_exact", {1, 0, 4, true}, {.num_passes = 4, .is_exact = true, .groups = 4}},
    {"tp2_exact", {2, 1, 4, true}, {}, 2, true, "", Dtype::kBf16},
    {"dp2", {}, {.dp = 2, .rank = 1, .num_passes = 2}},
    {"dp2_zero1", {}, {.dp = 2, .rank = 1, .shard = Shard::kZero1, .num_passes = 2}, 2, false},
    {"dp2_zero2", {}, {.dp = 2, .shard = Shard::kZero2, .num_passes = 2}, 2, true, "norm1"},
    {"dp2_zero3", {}, {.dp = 2, .rank = 1, .shard = Shard::kZero3}, 2, false, "0.k"},
    {"dp2_tp2_zero3", {2, 1, 2, false}, {.dp = 2, .shard = Shard::kZero3, .num_passes = 2}, 3},
    {"dp2_exact", {}, {.dp = 2, .rank = 1, .num_passes = 4, .is_exact = true, .groups = 4}},
    {"dp3_exact", {}, {.dp = 3, .rank = 2, .num_passes = 2, .is_exact = true, .groups = 2}},
    {"dp2_zero2_exact",
     {},
     {.dp = 2, .rank = 1, .shard = Shard::kZero2, .num_passes = 4, .is_exact = true, .groups = 4}},
};

std::ostream& operator<<(std::ostream& out, const RankChoice& c) { return out << c.name; }

class RankGraph : public ::testing::TestWithParam<RankChoice> {};

TEST_P(RankGraph, MatchesTheFile) {
  testing::expect_file(fmt::format("tests/parallel/data/{}.txt", GetParam().name),
                       testing::graph_text(graph_of(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankGraph, ::testing::ValuesIn(kChoices),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace weft
