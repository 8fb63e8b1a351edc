// tests/graph/builder_test.cpp: shapes that fit, and messages for those that do not.
#include "graph/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "graph/ops/adamw.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

using testing::DecoderShape;

template <typename Fn>
std::string bug_of(const Fn& fn) {
  try {
    fn();
  } catch (const BugError& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_named(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
}

class BuilderShapes : public ::testing::Test {
 protected:
  Graph graph_;
  Builder g_{&graph_, Dtype::kF32};
  Ref x_ = g_.input("x", {2, 3, 8}, Dtype::kF32);
};

TEST_F(BuilderShapes, EmbeddingNamesBoth) {
  const Ref table = g_.parameter("table", {10, 8});
  expect_named(bug_of([&] { ops::embedding(g_, x_, table, -1); }),
               {"[embedding]", "(2, 3, 8)", "(10, 8)"});
}

TEST_F(BuilderShapes, LinearNamesBoth) {
  const Ref w = g_.parameter("w", {5, 9}), ok = g_.parameter("ok", {5, 8}),
            b = g_.parameter("b", {4});
  expect_named(bug_of([&] { ops::linear(g_, x_, {w}, {}); }), {"[linear]", "(2, 3, 8)", "(5, 9)"});
  expect_named(bug_of([&] { ops::linear(g_, x_, {ok}, {b}); }), {"[linear]", "(5, 8)", "(4)"});
  expect_named(bug_of([&] { ops::linear(g_, x_, {}, {}); }), {"[linear]"});
}

TEST_F(BuilderShapes, NormNamesBoth) {
  const Ref w = g_.parameter("w", {9}), ok = g_.parameter("ok", {8});
  const Ref other = g_.input("other", {2, 4, 8}, Dtype::kF32);
  expect_named(bug_of([&] { ops::rmsnorm(g_, x_, Ref{}, w, 1); }),
               {"[rmsnorm]", "(2, 3, 8)", "(9)"});
  expect_named(bug_of([&] { ops::rmsnorm(g_, x_, other, ok, 1); }),
               {"[rmsnorm]", "(2, 3, 8)", "(2, 4, 8)"});
}

TEST_F(BuilderShapes, AttentionNamesBoth) {
  const Ref lengths = g_.input("lengths", {3}, Dtype::kI32);
  expect_named(bug_of([&] {
                 ops::attention(g_, x_, lengths, Ref{}, {4, 2, 2});
               }),
               {"[attention]", "16", "(2, 3, 8)"});
  expect_named(bug_of([&] {
                 ops::attention(g_, x_, lengths, Ref{}, {2, 1, 2});
               }),
               {"[attention]", "(3)", "(2, 3, 8)"});
  const Ref two = g_.input("two", {2}, Dtype::kI32), rows = g_.input("rows", {2, 2}, Dtype::kI64);
  const auto drop = [&](const DropoutRule& rule) {
    ops::attention(g_, x_, two, Ref{}, {2, 1, 2}, false, rule);
  };
  expect_named(bug_of([&] { drop({.rate = 0.5}); }), {"[attention]", "every row"});
  expect_named(bug_of([&] { drop({.rate = 0.5, .rows = two}); }), {"[attention]", "every row"});
  expect_named(bug_of([&] { drop({.rate = 1, .rows = rows}); }), {"[attention]", "[0, 1)"});
  EXPECT_NO_THROW(drop({.rate = 0.5, .rows = rows}));
  expect_named(bug_of([&] {
                 ops::rope(g_, x_, x_, x_, Ref{}, {4, 2, 2});
               }),
               {"[rope]", "16", "(2, 3, 8)"});
}

TEST_F(BuilderShapes, AttentionNamesMissingArguments) {
  const Ref lengths = g_.input("lengths", {2}, Dtype::kI32);
  const Ref kv = g_.input("kv", {2, 5, 8}, Dtype::kF32), q = g_.input("q", {2, 3, 4}, Dtype::kF32);
  const Ref table = g_.parameter("table", {8, 2}), narrow = g_.parameter("narrow", {8, 3});
  const AttentionCall cross = {.layout = QkvLayout::kQAndKv,
                               .values = {q, kv},
                               .heads = {2, 2, 2},
                               .lengths = lengths,
                               .source_lengths = lengths,
                               .causal = false};
  const auto expect_refused = [&](const std::function<void(AttentionCall*)>& change,
                                  const char* word) {
    AttentionCall call = cross;
    change(&call);
    expect_named(bug_of([&] { ops::attention(g_, call); }), {"[attention]", word});
  };
  expect_refused([&](AttentionCall* c) { c->source_lengths = {}; }, "need their own lengths");
  expect_refused([&](AttentionCall* c) { c->values = {q}; }, "wanted 2 values");
  expect_refused([&](AttentionCall* c) { c->heads = {2, 1, 2}; }, "(B, T, 4)");
  expect_refused(
      [&](AttentionCall* c) {
        c->positions = g_.input("p", {2, 3}, Dtype::kI32);
      },
      "both sides");
  expect_refused([&](AttentionCall* c) { c->bias = ScoreBias::kRelative; }, "a table");
  expect_refused([&](AttentionCall* c) { c->table = table; }, "a table");
  const auto relative = [&](AttentionCall* c, Ref t, int64_t max_distance) {
    c->bias = ScoreBias::kRelative;
    c->table = t;
    c->max_distance = max_distance;
  };
  expect_refused([&](AttentionCall* c) { relative(c, narrow, 9); }, "(8, 3)");
  expect_refused([&](AttentionCall* c) { relative(c, table, 2); }, "8 buckets up to distance 2");
  expect_refused([&](AttentionCall* c) { relative(c, table, INT32_MAX / 2); }, "1073741823 cannot");
  for (const float scale : {-1.0f, INFINITY, NAN}) {
    expect_refused([&](AttentionCall* c) { c->scale = scale; }, "a finite scale above 0");
  }
  expect_refused([&](AttentionCall* c) { c->window = 3; }, "wants causal");
  expect_refused([&](AttentionCall* c) { c->window = int64_t{1} << 31; }, "2147483648");
  expect_refused([&](AttentionCall* c) { c->window = -1; }, "got -1");
  expect_refused(
      [&](AttentionCall* c) {
        const Ref wide = g_.input("wide", {2, 3, kMostHeadsOfAlibi + 1}, Dtype::kF32);
        *c = {.layout = QkvLayout::kSeparate,
              .values = {wide, wide, wide},
              .heads = {kMostHeadsOfAlibi + 1, kMostHeadsOfAlibi + 1, 1},
              .lengths = lengths,
              .bias = ScoreBias::kAlibi};
      },
      "8191 heads, got 8192");
  AttentionCall right = cross;
  relative(&right, table, 9);
  EXPECT_NO_THROW(ops::attention(g_, right));
}

TEST_F(BuilderShapes, HeadNamesBoth) {
  const Ref w = g_.parameter("w", {10, 9}), ok = g_.parameter("ok", {10, 8});
  const Ref targets = g_.input("targets", {2, 4}, Dtype::kI32);
  expect_named(bug_of([&] { ops::head_loss(g_, x_, w, targets, 4); }),
               {"[head_loss]", "(2, 3, 8)", "(10, 9)"});
  expect_named(bug_of([&] { ops::head_loss(g_, x_, ok, targets, 4); }),
               {"[head_loss]", "(2, 3, 8)", "(2, 4)"});
  expect_named(bug_of([&] {
                 ops::swiglu(g_, g_.input("odd", {1, 1, 7}, Dtype::kF32));
               }),
               {"[swiglu]", "(1, 1, 7)"});
}

TEST(BuilderFlops, CountTheProducts) {
  Graph graph;
  const DecoderShape s{.B = 3, .T = 5, .layers = 1, .tied = false};
  testing::trace_decoder(&graph, s);
  const double R = 15, C = 32;
  double linear = 0, attention = 0, head = 0, other = 0;
  for (const Node& n : graph.pass) {
    const double f = node_flops(graph, n);
    (n.op == &kLinearOp      ? linear
     : n.op == &kAttentionOp ? attention
     : n.op == &kHeadLossOp  ? head
                             : other) += f;
  }
  EXPECT_EQ(linear, 2 * R * C * (32 + 16 + 16 + 32 + 24 + 24 + 24));
  EXPECT_EQ(attention, 2 * 3 * 5 * 5 * 32);  // two products over half of T x T
  EXPECT_EQ(head, 2 * R * C * 40);
  EXPECT_EQ(other, 0);
}

TEST(BuilderNames, AreFoundOnce) {
  Graph graph;
  testing::trace_decoder(&graph, {});
  EXPECT_TRUE(graph.find("1.down"));
  EXPECT_FALSE(graph.find("head"));
  EXPECT_EQ(value_bytes(graph[*graph.find("embed")]), 40 * 32 * 4);
  EXPECT_STREQ(op_name(&kAdamwOp), "adamw");
  EXPECT_STREQ(op_name(&kRmsNormGradOp), "rmsnorm_grad");
  EXPECT_STREQ(kind_name(ValueKind::kResult), "result");
}

}  // namespace
}  // namespace weft
