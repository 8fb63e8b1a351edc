// exec/plan.h: a graph with its memory: what `weft plan` prints and an executor runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exec/memory_plan.h"
#include "exec/op_binding.h"
#include "graph/graph.h"
#include "kernel/kernels.h"

namespace weft {

struct PlanOptions {
  const Kernels* kernels;
  int num_threads = 1;
  int num_passes = 1;  // of one optimizer step
  int tp = 1, dp = 1;  // ranks on the axes of the mesh
};

struct Plan {
  Graph graph;
  PlanOptions options;
  Schedule pass_schedule, finish_schedule;
  MemoryPlan memory;
  int64_t table_bytes = 0;  // of a GPU's lists of parameters (exec/device_finish.h)
  double pass_flops = 0;
};

// What bindings get while planning; the view has no real addresses.
PlanContext plan_context(const PlanOptions& options, const View& view);

// Changes a graph to the form that a GPU needs. UserError where it exceeds a GPU's limits.
void suit_device(Graph* graph);

Plan make_plan(Graph graph, const PlanOptions& options);

// The plan of the same graph traced for shorter rows: every value has its place in `longest`, whose
// memory both share, and one may leave gradients for the other's finish list.
Plan shorten_plan(const Plan& longest, Graph graph);

// The places of several plans that share parameters (training and evaluation) in one arena.
// Persistent values are identified by name: the same name in a second plan is the same memory.
class ArenaLayout {
 public:
  void add(const Plan& plan);
  int64_t total_bytes() const { return persistent_ + step_ + tables_; }
  int64_t persistent_bytes() const { return persistent_; }
  int64_t step_bytes() const { return step_; }
  int64_t step_offset() const { return persistent_; }
  int64_t table_offset() const { return persistent_ + step_; }
  int64_t offset(const std::string& name) const;

 private:
  struct Span {
    int64_t offset, bytes;
  };
  std::map<std::string, Span> spans_;
  int64_t persistent_ = 0, step_ = 0, tables_ = 0;
};

}  // namespace weft
