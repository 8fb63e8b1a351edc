// tests/exec/feed_forward_run.h: two passes of a small model, its loss and all gradients.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "base/exact_sum.h"
#include "base/random.h"
#include "exec/executor.h"
#include "kernel/cpu/level.h"
#include "parallel/recompute.h"
#include "tests/graph/feed_forward_graph.h"

namespace weft::testing {

// ref, and every level of this machine.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all = {&ref_kernels()};
  for (const char* name : available_levels()) all.push_back(find_kernels(name));
  return all;
}

struct RunChoice {
  bool recompute = true;
  int threads = 1;
  int poison = 0;  // what the step's memory is filled with before every pass
  std::vector<std::string> frozen = {};
  std::string changed = {};  // of this parameter ...
  int64_t element = 0;       // ... this element gets
  double by = 0;             // this added
};

struct RunResult {
  double loss = 0;
  std::map<std::string, std::vector<float>> gradients;
  bool operator==(const RunResult&) const = default;
};

inline void fill_parameters(const Executor& e, const Graph& graph, const RunChoice& c) {
  for (const Value& v : graph.values) {
    if (v.kind != ValueKind::kParameter) continue;
    for (int64_t i = 0; i < num_elements(v.shape); ++i) {
      const uint64_t stream = std::hash<std::string>{}(v.name);
      double x = 0.6 * normal_at(1, stream, static_cast<uint64_t>(i));
      if (v.name == c.changed && i == c.element) x += c.by;
      store_element(e.find(v.name), v.dtype, i, static_cast<float>(x));
    }
  }
}

inline RunResult run_feed_forward(const FeedForward& s, const Kernels& kernels,
                                  const RunChoice& c = {}) {
  constexpr int kPasses = 2;  // the second adds to the gradients of the first
  Graph graph = differentiated(s, c.frozen);
  if (c.recompute) recompute_cheap_values(&graph);
  const Plan plan = make_plan(std::move(graph), {&kernels, c.threads, kPasses});
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  ThreadPool pool(c.threads);
  Executor e(plan, layout, arena, &pool);
  fill_parameters(e, plan.graph, c);
  StepScalars scalars;
  RunResult result;
  for (scalars.pass = 0; scalars.pass < kPasses; ++scalars.pass) {
    std::memset(arena.data() + layout.step_offset(), c.poison,
                static_cast<size_t>(layout.step_bytes()));
    for (int64_t i = 0; i < s.B * s.T; ++i) {
      e.at<int32_t>("ids")[i] = static_cast<int32_t>((i * 7 + scalars.pass) % s.vocab);
      e.at<int32_t>("targets")[i] = static_cast<int32_t>((i * 5 + scalars.pass) % s.vocab);
    }
    e.run_pass(scalars);
  }
  result.loss = e.at<ExactSum>("loss_sum")->value();
  for (Ref r : plan.graph.of_kind(ValueKind::kGradient)) {
    const Value& v = plan.graph[r];
    const float* at = e.at<float>(v.name);
    result.gradients[v.name].assign(at, at + num_elements(v.shape));
  }
  return result;
}

// Every parameter's gradient against the difference of the loss by a few of its elements. The loss
// is a sum of 20 fp32 losses of about 3: a step of 2^-8 leaves 5e-4 of noise.
inline void expect_gradients_are_differences(const FeedForward& s, const Kernels& kernels) {
  constexpr double kStep = 0x1p-8;
  const RunResult run = run_feed_forward(s, kernels);
  EXPECT_TRUE(std::isfinite(run.loss));
  for (const auto& [name, gradient] : run.gradients) {
    const int64_t n = static_cast<int64_t>(gradient.size());
    for (int64_t i : {int64_t{0}, n / 2, n - 1}) {
      RunChoice c{.changed = name.substr(0, name.size() - 5), .element = i, .by = kStep};
      const double up = run_feed_forward(s, kernels, c).loss;
      c.by = -kStep;
      const double slope = (up - run_feed_forward(s, kernels, c).loss) / (2 * kStep);
      EXPECT_NEAR(gradient[static_cast<size_t>(i)], slope, 4e-3 * std::max(1.0, std::abs(slope)))
          << kernels.name << " " << name << " " << i;
    }
  }
}

// The bits do not depend on recomputation, on threads or on the initial memory contents.
inline void expect_bits_are_kept(const FeedForward& s, const Kernels& kernels) {
  const RunResult run = run_feed_forward(s, kernels);
  EXPECT_EQ(run, run_feed_forward(s, kernels, {.recompute = false})) << kernels.name;
  EXPECT_EQ(run, run_feed_forward(s, kernels, {.threads = 2})) << kernels.name;
  EXPECT_EQ(run, run_feed_forward(s, kernels, {.poison = 0xff})) << kernels.name;
}

}  // namespace weft::testing
