// exec/plan.cpp: workspace, and the layout of the arena.
#include "exec/plan.h"

#include <algorithm>

#include "base/error.h"
#include "exec/device_finish.h"
#include "graph/ops/grad_norm.h"
#include "parallel/stack_parts.h"

namespace weft {
namespace {

// All but the places: schedules, workspace.
Plan begin_plan(Graph graph, const PlanOptions& options) {
  for (const std::vector<Node>* list : {&graph.pass, &graph.finish}) {
    for (const Node& n : *list) check_node(graph, n);
  }
  if (options.kernels->device) suit_device(&graph);
  Plan plan{std::move(graph), options, {}, {}, {}, 0, 0};
  plan.pass_schedule = make_schedule(plan.graph, plan.graph.pass);
  plan.finish_schedule = make_schedule(plan.graph, plan.graph.finish);
  for (const Node& n : plan.graph.pass) plan.pass_flops += node_flops(plan.graph, n);
  return plan;
}

// What each node needs while it runs (pass, then finish), and a GPU's tables.
std::vector<int64_t> find_scratch(Plan* plan) {
  const Graph& graph = plan->graph;
  const Nowhere nowhere(graph);
  const View& view = nowhere.view();
  const PlanContext context = plan_context(plan->options, view);
  std::vector<int64_t> bytes;
  for (const std::vector<Node>* list : {&graph.pass, &graph.finish}) {
    for (const Node& n : *list) {
      bytes.push_back(static_cast<int64_t>(binding_of(n.op).workspace(context, n)));
    }
  }
  if (!plan->options.kernels->device || graph.finish.empty()) return bytes;
  const DeviceFinish finish(view, *plan->options.kernels, graph.finish);
  plan->table_bytes = finish.table_bytes();
  for (size_t i = 0; i < graph.finish.size(); ++i) {  // squares are computed with the norm
    if (graph.finish[i].op == &kNormOp) bytes[graph.pass.size() + i] = finish.workspace_bytes();
  }
  return bytes;
}

bool are_alike(const std::vector<Node>& a, const std::vector<Node>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Node& x, const Node& y) {
    return x.op == y.op && x.inputs == y.inputs && x.outputs == y.outputs;
  });
}

}  // namespace

void suit_device(Graph* graph) {
  const std::vector<std::byte*> nothing(graph->values.size(), nullptr);
  for (const Node& n : graph->pass) binding_of(n.op).check_device({*graph, nothing}, n);
  stack_parts(graph);
  for (Node& n : graph->pass) binding_of(n.op).suit_device(&n);
}

PlanContext plan_context(const PlanOptions& options, const View& view) {
  return {view, *options.kernels, options.num_threads, {.tp = options.tp, .dp = options.dp}};
}

Plan make_plan(Graph graph, const PlanOptions& options) {
  Plan plan = begin_plan(std::move(graph), options);
  const std::vector<int64_t> scratch = find_scratch(&plan);
  plan.memory = plan_memory(plan.graph, options.num_passes, plan.pass_schedule,
                            plan.finish_schedule, scratch);
  return plan;
}

// Nodes and values are the same, so lifetimes are; sizes are no larger, so nothing new overlaps.
Plan shorten_plan(const Plan& longest, Graph graph) {
  Plan plan = begin_plan(std::move(graph), longest.options);
  ensure(plan.graph.values.size() == longest.graph.values.size() &&
             are_alike(plan.graph.pass, longest.graph.pass) &&
             are_alike(plan.graph.finish, longest.graph.finish),
         "a shorter row is another graph");
  plan.memory = longest.memory;
  for (size_t i = 0; i < plan.graph.pass.size(); ++i) {
    Node& node = plan.graph.pass[i];
    binding_of(node.op).shorten(longest.graph, longest.graph.pass[i], &node);
  }
  const std::vector<int64_t> scratch = find_scratch(&plan);
  for (size_t t = 0; t < scratch.size(); ++t) {
    ensure(scratch[t] <= plan.memory.scratch[t].bytes, "a shorter row needs more scratch");
  }
  for (size_t i = 0; i < plan.graph.values.size(); ++i) {
    Place& place = plan.memory.places[i];
    if (place.region == Place::Region::kNone) continue;
    const int64_t bytes = value_bytes(plan.graph.values[i]);
    ensure(bytes <= place.bytes, plan.graph.values[i].name + " is larger in a shorter row");
    place.bytes = bytes;
  }
  return plan;
}

void ArenaLayout::add(const Plan& plan) {
  for (size_t i = 0; i < plan.graph.values.size(); ++i) {
    const Place& place = plan.memory.places[i];
    if (place.region != Place::Region::kPersistent) continue;
    const std::string& name = plan.graph.values[i].name;
    const auto found = spans_.find(name);
    if (found != spans_.end()) {
      ensure(found->second.bytes >= place.bytes, name + " is larger in a later plan");
      continue;
    }
    spans_[name] = {persistent_, place.bytes};
    persistent_ += align_up(place.bytes);
  }
  step_ = std::max(step_, align_up(plan.memory.step_bytes));
  tables_ = std::max(tables_, plan.table_bytes);
}

int64_t ArenaLayout::offset(const std::string& name) const {
  const auto found = spans_.find(name);
  ensure(found != spans_.end(), name + " has no place in the arena");
  return found->second.offset;
}

}  // namespace weft
