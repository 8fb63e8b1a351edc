// tests/graph/decoder_graph.h: a small decoder written with the builder, of any shape.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/ops/attention.h"
#include "graph/ops/embedding.h"
#include "graph/ops/head.h"
#include "graph/ops/linear.h"
#include "graph/ops/rmsnorm.h"
#include "graph/ops/rope.h"
#include "graph/ops/swiglu.h"

namespace weft::testing {

struct DecoderShape {
  int64_t B = 2, T = 6, heads = 4, kv_heads = 2, head_dim = 8, width = 24, vocab = 40, layers = 2;
  bool bias = false, tied = true;
  int64_t chunk_rows = 5;
  Dtype compute = Dtype::kF32;
  bool o_bias = false;
  int64_t hidden() const { return heads * head_dim; }
};

// The forward pass; returns the losses.
inline Ref trace_decoder(Graph* graph, const DecoderShape& s) {
  Builder g(graph, s.compute);
  const HeadShape h{s.heads, s.kv_heads, s.head_dim};
  const int64_t C = s.hidden(), q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const Ref ids = g.input("ids", {s.B, s.T}, Dtype::kI32);
  const Ref targets = g.input("targets", {s.B, s.T}, Dtype::kI32);
  const Ref lengths = g.input("lengths", {s.B}, Dtype::kI32);
  const Ref cosine = g.constant("rope.cosine", {s.T, s.head_dim / 2}, Dtype::kF32);
  const Ref sine = g.constant("rope.sine", {s.T, s.head_dim / 2}, Dtype::kF32);
  const Ref embed = g.parameter("embed", {s.vocab, C});
  const auto p = [&](int64_t layer, const char* name, Shape shape) {
    return g.parameter(fmt::format("{}.{}", layer, name), std::move(shape));
  };
  Ref x = ops::embedding(g, ids, embed, -1);
  g.set_layer(0);
  Ref y = ops::rmsnorm(g, x, Ref{}, p(0, "norm1", {C}), 1e-5f).y;
  for (int64_t i = 0; i < s.layers; ++i) {
    g.set_layer(static_cast<int>(i));
    std::vector<Ref> b;
    if (s.bias) b = {p(i, "q.bias", {q}), p(i, "k.bias", {kv}), p(i, "v.bias", {kv})};
    const Ref qkv =
        ops::linear(g, y, {p(i, "q", {q, C}), p(i, "k", {kv, C}), p(i, "v", {kv, C})}, b);
    const Ref attended =
        ops::attention(g, ops::rope(g, qkv, cosine, sine, Ref{}, h), lengths, Ref{}, h);
    std::vector<Ref> o_bias;
    if (s.o_bias) o_bias = {p(i, "o.bias", {C})};
    // One call per statement: compilers differ in the order in which they evaluate arguments.
    const Ref o = ops::linear(g, attended, {p(i, "o", {C, q})}, o_bias);
    const auto middle = ops::rmsnorm(g, o, x, p(i, "norm2", {C}), 1e-5f);
    const Ref f = ops::swiglu(
        g, ops::linear(g, middle.y, {p(i, "gate", {s.width, C}), p(i, "up", {s.width, C})}, {}));
    const Ref down = ops::linear(g, f, {p(i, "down", {C, s.width})}, {});
    const auto out = ops::rmsnorm(g, down, middle.sum, p(i + 1, "norm1", {C}), 1e-5f);
    x = out.sum;
    y = out.y;
  }
  g.set_layer(-1);
  return ops::head_loss(g, y, s.tied ? embed : g.parameter("head", {s.vocab, C}), targets,
                        s.chunk_rows);
}

inline void freeze(Graph* graph, const std::string& part) {
  for (Ref r : graph->of_kind(ValueKind::kParameter)) {
    if ((*graph)[r].name.find(part) != std::string::npos) (*graph)[r].frozen = true;
  }
}

inline std::vector<const Node*> writers(const Graph& graph, const std::string& name) {
  std::vector<const Node*> found;
  const auto ref = graph.find(name);
  for (const Node& n : graph.pass) {
    for (Ref out : n.outputs) {
      if (ref && out == *ref) found.push_back(&n);
    }
  }
  return found;
}

inline int count(const Graph& graph, Op op) {
  int n = 0;
  for (const Node& node : graph.pass) n += node.op == op;
  return n;
}

}  // namespace weft::testing
