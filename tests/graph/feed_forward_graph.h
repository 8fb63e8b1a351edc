// tests/graph/feed_forward_graph.h: a model of one feed-forward layer with layer norms, for tests
// of operations that the decoders do not use.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/ops/embedding.h"
#include "graph/ops/head.h"
#include "graph/ops/layernorm.h"
#include "graph/ops/linear.h"
#include "graph/ops/swiglu.h"
#include "tests/graph/decoder_graph.h"

namespace weft::testing {

struct FeedForward {
  int64_t B = 2, T = 5, C = 12, F = 16, vocab = 20;
  bool bias = true;
  Dtype compute = Dtype::kF32;
  int64_t up_width = 32;  // columns that the activation reads: swiglu's 2 F
  std::function<Ref(Builder&, Ref)> activation = ops::swiglu;
};

// The forward pass; returns the losses. Both norms read x: the first as its input, the second as
// the residual.
inline Ref trace_feed_forward(Graph* graph, const FeedForward& s) {
  Builder g(graph, s.compute);
  const Ref ids = g.input("ids", {s.B, s.T}, Dtype::kI32);
  const Ref targets = g.input("targets", {s.B, s.T}, Dtype::kI32);
  const auto bias = [&](const char* name, int64_t n) {
    return s.bias ? g.parameter(name, {n}) : Ref{};
  };
  const Ref x = ops::embedding(g, ids, g.parameter("embed", {s.vocab, s.C}), -1);
  g.set_layer(0);
  const Ref w1 = g.parameter("norm1.weight", {s.C});
  const Ref y = ops::layernorm(g, x, Ref{}, w1, bias("norm1.bias", s.C), 1e-5f).y;
  const Ref up = ops::linear(g, y, {g.parameter("up", {s.up_width, s.C})}, {});
  const Ref h = s.activation(g, up);
  const Ref down = ops::linear(g, h, {g.parameter("down", {s.C, s.F})}, {});
  const Ref w2 = g.parameter("norm2.weight", {s.C});
  const Ref out = ops::layernorm(g, down, x, w2, bias("norm2.bias", s.C), 1e-5f).y;
  g.set_layer(-1);
  return ops::head_loss(g, out, g.parameter("head", {s.vocab, s.C}), targets, 3);
}

inline Graph differentiated(const FeedForward& s, const std::vector<std::string>& frozen = {}) {
  Graph graph;
  const Ref losses = trace_feed_forward(&graph, s);
  for (const std::string& part : frozen) freeze(&graph, part);
  add_backward(&graph, losses, Dtype::kF32);
  return graph;
}

inline const Node& only(const Graph& graph, Op op) {
  const Node* found = nullptr;
  for (const Node& node : graph.pass) {
    if (node.op != op) continue;
    EXPECT_EQ(found, nullptr) << op_name(op) << " appears twice";
    found = &node;
  }
  if (!found) throw BugError(fmt::format("no {}", op_name(op)));
  return *found;
}

}  // namespace weft::testing
