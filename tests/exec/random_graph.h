// tests/exec/random_graph.h: decoders of random shape, differentiated, with an optimizer.
#pragma once

#include <random>

#include "graph/autodiff.h"
#include "optim/updates.h"
#include "parallel/recompute.h"
#include "tests/graph/decoder_graph.h"

namespace weft::testing {

struct GraphChoice {
  DecoderShape shape;
  bool recompute = true, masters = false;
  Dtype grad_dtype = Dtype::kF32;
  std::vector<std::string> frozen;
  OptimizerConfig optimizer = {};
};

inline Graph training_graph(const GraphChoice& c) {
  Graph graph;
  const Ref losses = trace_decoder(&graph, c.shape);
  for (const std::string& part : c.frozen) freeze(&graph, part);
  add_backward(&graph, losses, c.grad_dtype);
  if (c.recompute) recompute_cheap_values(&graph);
  UpdateOptions options;
  options.master_weights = c.masters;
  add_updates(&graph, find_optimizer(c.optimizer.name), c.optimizer, options);
  return graph;
}

inline GraphChoice random_choice(std::mt19937* random) {
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<int64_t>((*random)() % values.size()));
  };
  GraphChoice c;
  c.shape.B = one_of({1, 2, 3, 5});
  c.shape.T = one_of({1, 3, 7, 16});
  c.shape.kv_heads = one_of({1, 2, 3});
  c.shape.heads = c.shape.kv_heads * one_of({1, 2, 4});
  c.shape.head_dim = one_of({2, 8, 16});
  c.shape.width = one_of({5, 24, 70});
  c.shape.vocab = one_of({3, 40, 129});
  c.shape.layers = one_of({1, 2, 3});
  c.shape.bias = one_of({0, 1}) == 1;
  c.shape.tied = one_of({0, 1}) == 1;
  c.shape.chunk_rows = one_of({1, 4, 1000});
  c.shape.compute = one_of({0, 1}) == 1 ? Dtype::kBf16 : Dtype::kF32;
  c.recompute = one_of({0, 1, 1}) == 1;
  c.masters = c.shape.compute == Dtype::kBf16 && one_of({0, 1}) == 1;
  c.grad_dtype = c.shape.compute == Dtype::kBf16 && !c.masters ? Dtype::kBf16 : Dtype::kF32;
  const std::vector<std::string> some[] = {
      {}, {}, {"norm"}, {"0."}, {".k"}, {"embed", "0."}, {"up", ".bias"}};
  c.frozen = some[(*random)() % std::size(some)];
  if (one_of({0, 1}) == 1) {
    c.optimizer.name = "sgd";
    c.optimizer.momentum = one_of({0, 1}) == 1 ? 0.9 : 0.0;
  }
  return c;
}

}  // namespace weft::testing
