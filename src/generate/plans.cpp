// generate/plans.cpp: the grid of plans, and the names of their values.
#include "generate/plans.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

// Maximum tokens of one step: enough to saturate the matrix products, few enough for the caches.
constexpr int64_t kStepTokens = 1024;
constexpr int64_t kPositions[] = {1, 16, 64, 256};

std::vector<int64_t> batch_sizes(int64_t largest) {
  std::vector<int64_t> sizes{largest};
  while (sizes.back() > 1) sizes.push_back((sizes.back() + 3) / 4);
  return sizes;
}

// Inputs differ in size, so each plan has its own; the first plan's logits and cache contain those
// of the others.
void rename_values(Graph& graph, const std::string& plan) {
  for (Value& v : graph.values) {
    if (v.kind == ValueKind::kParameter || v.kind == ValueKind::kActivation) continue;
    const bool own = v.kind == ValueKind::kInput;
    v.name = kGeneratePrefix + (own ? plan + "." : "") + v.name;
  }
}

Plan make_one(const Model& model, const GenerateOptions& o, int64_t batch, int64_t positions,
              const PlanOptions& plan_options) {
  Graph graph;
  model.trace_generate(&graph, {batch, positions, o.compute, o.max_positions});
  rename_values(graph, fmt::format("{}x{}", batch, positions));
  return make_plan(std::move(graph), plan_options);
}

}  // namespace

GeneratePlans make_generate_plans(const Model& model, const GenerateOptions& options,
                                  const Kernels& kernels, int num_threads) {
  GeneratePlans made{options, {}};
  GenerateOptions& o = made.options;
  if (o.max_positions == 0) o.max_positions = model.max_positions();
  require(o.max_positions <= model.max_positions(),
          "{} positions were requested, but the model has {}", o.max_positions,
          model.max_positions());
  ensure(o.max_batch > 0 && o.max_positions > 0, "a batch has rows and positions");
  for (const int64_t batch : batch_sizes(o.max_batch)) {
    int64_t before = 0;
    for (const int64_t positions : kPositions) {
      const bool fits = positions == 1 || batch * positions <= kStepTokens;
      if (!fits || before >= o.max_positions) break;
      made.plans.push_back(
          {batch, positions, make_one(model, o, batch, positions, {&kernels, num_threads, 1})});
      before = positions;
    }
  }
  return made;
}

ArenaLayout layout_of(const GeneratePlans& plans) {
  ArenaLayout layout;
  for (const GeneratePlan& p : plans.plans) layout.add(p.plan);
  return layout;
}

}  // namespace weft
