// planning/cluster_report.h: a run on a cluster on paper: step time, MFU, exposed communication,
// goodput. Nothing is allocated or started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "exec/wire_item.h"
#include "planning/cluster.h"
#include "planning/collective_cost.h"
#include "planning/goodput.h"
#include "planning/step_simulation.h"

namespace weft {

// The collectives of one operation and group, of one step.
struct CollectiveTime {
  WireItem item;
  int64_t nodes = 1;  // that the group spans
  double seconds = 0;
};

// How a run survives failures.
struct SurvivalPlan {
  Recovery recovery;
  int64_t steps = 0;  // between two snapshots or checkpoints
  double goodput = 1;
};

struct ClusterReport {
  Cluster cluster;
  Layout layout;
  int64_t num_parameters = 0, num_passes = 1, tokens = 0;
  int64_t ranks_per_node = 1;
  double flops = 0;              // of rank 0 in one step
  int64_t memory = 0;            // of rank 0: its arena without scratch
  int64_t state_bytes = 0;       // of rank 0: what a snapshot copies
  int64_t checkpoint_bytes = 0;  // of all ranks
  StepTimes times;
  std::vector<CollectiveTime> collectives;
  std::optional<SurvivalPlan> from_memory;  // none: launch.snapshot_every is 0
  SurvivalPlan from_storage;
  std::vector<std::string> notes;

  int64_t nodes() const { return layout.num_ranks() / ranks_per_node; }
  double mfu() const;
  double tokens_per_s() const { return static_cast<double>(tokens) / times.step; }
  double failures_per_s() const;
  bool fits() const;  // true where the memory is not given

  Json to_json() const;
  std::string to_text() const;
};

// UserError where the layout does not fit the cluster, or the file lacks a speed.
ClusterReport plan_cluster(const RunConfig& config, const Cluster& cluster);
ClusterReport plan_cluster(const RunConfig& config, const Model& model, const Cluster& cluster);

}  // namespace weft
