// tests/exec/traced_model.h: a model around an operation, run with its gradients, which are checked
// against differences of the loss.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/exact_sum.h"
#include "base/random.h"
#include "exec/executor.h"
#include "graph/autodiff.h"
#include "graph/ops/embedding.h"
#include "graph/ops/head.h"
#include "tests/kernel/tolerances.h"

namespace weft::testing {

inline constexpr int64_t kRows = 2, kPositions = 3, kChannels = 8, kVocabulary = 11;

// x (kRows, kPositions, kChannels) -> a value of the same shape, with its own parameters.
using Body = std::function<Ref(Builder&, Ref x)>;

inline Graph traced(const Body& body, Dtype compute = Dtype::kF32) {
  Graph graph;
  Builder g(&graph, compute);
  const Ref ids = g.input("ids", {kRows, kPositions}, Dtype::kI32);
  const Ref targets = g.input("targets", {kRows, kPositions}, Dtype::kI32);
  const Ref x = ops::embedding(g, ids, g.parameter("embed", {kVocabulary, kChannels}), -1);
  const Ref y = body(g, x);
  const Ref losses =
      ops::head_loss(g, y, g.parameter("head", {kVocabulary, kChannels}), targets, 4);
  add_backward(&graph, losses, Dtype::kF32);
  return graph;
}

// Two passes per step are planned, so that gradients have separate memory.
class TracedModel {
 public:
  TracedModel(Graph graph, const Kernels& kernels)
      : plan_(make_plan(std::move(graph), {&kernels, 1, 2})), pool_(1) {
    layout_.add(plan_);
    arena_ = std::make_unique<Arena>(layout_.total_bytes());
    executor_ = std::make_unique<Executor>(plan_, layout_, *arena_, &pool_);
    for (const Ref r : plan_.graph.of_kind(ValueKind::kParameter)) {
      const Value& v = plan_.graph[r];
      for (int64_t i = 0; i < num_elements(v.shape); ++i) {
        const double x = normal_at(3, static_cast<uint64_t>(r.id), static_cast<uint64_t>(i));
        store_element(executor_->data(r), v.dtype, i, static_cast<float>(0.5 * x));
      }
    }
    for (int i = 0; i < kRows * kPositions; ++i) {
      executor_->at<int32_t>("ids")[i] = (3 * i + 1) % static_cast<int>(kVocabulary);
      executor_->at<int32_t>("targets")[i] = (5 * i + 2) % static_cast<int>(kVocabulary);
    }
  }

  Executor& executor() { return *executor_; }
  const Graph& graph() const { return plan_.graph; }

  // The sum of the losses. Clears what an earlier pass left in the step's memory.
  double loss() {
    std::memset(arena_->data() + layout_.step_offset(), 0xff,
                static_cast<size_t>(layout_.step_bytes()));
    executor_->run_pass({});
    return executor_->at<ExactSum>("loss_sum")->value();
  }

  // Of every parameter, by its name.
  std::map<std::string, std::vector<float>> gradients() {
    loss();
    std::map<std::string, std::vector<float>> all;
    for (const Update& u : plan_.graph.updates) {
      const auto* from = reinterpret_cast<const float*>(executor_->data(u.gradient));
      const auto n = num_elements(plan_.graph[u.gradient].shape);
      all[plan_.graph[u.parameter].name].assign(from, from + n);
    }
    return all;
  }

  // Every gradient against differences of the loss; fp32. Four points, because norms of small
  // values are so curved that two leave a third-order error above the tolerance.
  void expect_differences() {
    for (const auto& [name, gradient] : gradients()) {
      auto* p = executor_->at<float>(name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const float old = p[i];
        const auto loss_at = [&](double steps) {
          p[i] = static_cast<float>(old + steps * kDifferenceStep);
          return loss();
        };
        const double near = loss_at(1) - loss_at(-1), far = loss_at(2) - loss_at(-2);
        p[i] = old;
        EXPECT_NEAR(gradient[i], (8 * near - far) / (12 * kDifferenceStep), kDifferenceTolerance)
            << name << " " << i;
      }
    }
  }

 private:
  Plan plan_;
  ThreadPool pool_;
  ArenaLayout layout_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Executor> executor_;
};

inline std::vector<const Node*> nodes_of(const Graph& graph, Op op) {
  std::vector<const Node*> found;
  for (const Node& node : graph.pass) {
    if (node.op == op) found.push_back(&node);
  }
  return found;
}

}  // namespace weft::testing
