// generate/plans.cpp: the grid of plans, and the names of their values.
#include "generate/plans.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

// Maximum tokens of one step: enough to saturate the matrix products, few enough for the caches.
constexpr int64_t kStepTokens = 1024;
constexpr int64_t kPositions[] = {1, 16, 64, 256};
constexpr int64_t kShortestSource = 16;

std::vector<int64_t> batch_sizes(int64_t largest) {
  std::vector<int64_t> sizes{largest};
  while (sizes.back() > 1) sizes.push_back((sizes.back() + 3) / 4);
  return sizes;
}

// Inputs differ in size, so each plan has its own; the first plan's logits and cache contain those
// of the others. The buckets of an encoder hold other parameters than those of a decoder.
void rename_values(Graph& graph, const std::string& plan, bool has_encoder_buckets) {
  for (Value& v : graph.values) {
    if (v.kind == ValueKind::kActivation) continue;
    if (v.kind == ValueKind::kParameter) {
      if (has_encoder_buckets && v.name.starts_with("bucket")) v.name = "encode." + v.name;
      continue;
    }
    const bool own = v.kind == ValueKind::kInput;
    v.name = kGeneratePrefix + (own ? plan + "." : "") + v.name;
  }
}

GeneratePlan finish_plan(Graph graph, const GenerateOptions& o, int64_t batch, int64_t positions,
                         bool is_encoder, const PlanOptions& plan_options) {
  apply_tensor_parallel(&graph, o.rank.cuts, o.rank.tensor);
  const std::optional<BucketPlaces>& buckets = o.rank.buckets;
  if (buckets) {
    apply_data_parallel(&graph, o.rank.data, *buckets);
  } else if (o.rank.data.needs_pass()) {
    apply_data_parallel(&graph, o.rank.data);
  }
  rename_values(graph, plan_name(batch, positions, is_encoder), is_encoder && !buckets);
  return {batch, positions, make_plan(std::move(graph), plan_options)};
}

GeneratePlan make_decode_plan(const Model& model, const GenerateOptions& o, int64_t batch,
                              int64_t positions, const PlanOptions& plan_options) {
  Graph graph;
  model.trace_generate(&graph, trace_options(o, batch, positions));
  return finish_plan(std::move(graph), o, batch, positions, false, plan_options);
}

GeneratePlan make_encode_plan(const Model& model, const GenerateOptions& o, int64_t batch,
                              int64_t positions, const PlanOptions& plan_options) {
  Graph graph;
  TraceOptions options = trace_options(o, batch, 0);
  options.source_positions = positions;
  model.trace_encode(&graph, options);
  return finish_plan(std::move(graph), o, batch, positions, true, plan_options);
}

// An encoder needs all of a row at once.
void add_encode_plans(const Model& model, const PlanOptions& plan_options, GeneratePlans* made) {
  const GenerateOptions& o = made->options;
  const int64_t longest = o.max_source_positions;
  for (int64_t positions = kShortestSource;; positions *= 2) {
    positions = std::min(positions, longest);
    const int64_t batch = std::clamp<int64_t>(kStepTokens / positions, 1, o.max_batch);
    made->encode.push_back(make_encode_plan(model, o, batch, positions, plan_options));
    if (positions == longest) return;
  }
}

}  // namespace

std::string plan_name(int64_t batch, int64_t positions, bool is_encoder) {
  return fmt::format("{}{}x{}", is_encoder ? "encode" : "", batch, positions);
}

TraceOptions trace_options(const GenerateOptions& o, int64_t batch, int64_t positions) {
  return {.batch = batch,
          .positions = positions,
          .compute = o.compute,
          .max_positions = o.max_positions,
          .max_source_positions = o.max_source_positions};
}

GeneratePlans make_generate_plans(const Model& model, const GenerateOptions& options,
                                  const Kernels& kernels, int num_threads) {
  GeneratePlans made{options, {}, {}};
  GenerateOptions& o = made.options;
  if (o.max_positions == 0) o.max_positions = model.max_positions();
  require(o.max_positions <= model.max_positions(),
          "{} positions were requested, but the model has {}", o.max_positions,
          model.max_positions());
  if (o.max_source_positions == 0) o.max_source_positions = o.max_positions;
  ensure(o.max_batch > 0 && o.max_positions > 0, "a batch has rows and positions");
  const PlanOptions plan_options{&kernels, num_threads, 1, o.rank.tensor.tp, o.rank.data.dp};
  for (const int64_t batch : batch_sizes(o.max_batch)) {
    int64_t before = 0;
    for (const int64_t positions : kPositions) {
      const bool fits = positions == 1 || batch * positions <= kStepTokens;
      if (!fits || before >= o.max_positions) break;
      made.plans.push_back(make_decode_plan(model, o, batch, positions, plan_options));
      before = positions;
    }
  }
  if (reads_source(model)) add_encode_plans(model, plan_options, &made);
  return made;
}

ArenaLayout layout_of(const GeneratePlans& plans) {
  ArenaLayout layout;
  for (const auto* list : {&plans.plans, &plans.encode}) {
    for (const GeneratePlan& p : *list) layout.add(p.plan);
  }
  return layout;
}

}  // namespace weft
