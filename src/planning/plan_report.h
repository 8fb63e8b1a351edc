// planning/plan_report.h: what a run needs, before memory is allocated and ranks are started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "exec/memory_parts.h"
#include "exec/wire.h"
#include "planning/host_memory.h"
#include "planning/rank_classes.h"
#include "planning/speeds.h"

namespace weft {

// The plans of one class of ranks.
struct RankPlan {
  MemoryParts memory;
  double flops = 0;      // of one optimizer step
  int64_t snapshot = 0;  // of the class's first rank: host memory, from its first checkpoint on
};

struct PlanReport {
  int64_t num_parameters = 0;
  Layout layout;
  RankClasses classes;
  std::vector<RankPlan> plans;  // by class
  int threads = 1;              // per rank
  int ranks_of_node = 0;        // 0: there is one node
  int64_t num_passes = 1;
  int64_t tokens = 0;          // positions that all ranks feed in one step
  std::vector<WireItem> wire;  // of one step on rank 0, whose pieces are the largest
  std::optional<double> step_ms;
  std::string dump, picture;  // of rank 0: every node (text), the memory of a step (SVG)
  bool is_on_gpu = false;
  HostMemory host;             // on the CPU
  int64_t snapshots = 0;       // of all ranks: copies of their states; 0: none
  bool has_slots = false;      // those are in slots (launch.snapshot_every), else checkpoint.async
  int64_t ranks_on_a_gpu = 1;  // more than one: they share it
  int64_t staging = 0;  // besides the arena, for exact sums over NCCL (planning/gpu_memory_check.h)
  std::vector<std::string> idle;  // keys that were set but have no effect, one line each
  bool is_step_of_fp32 = false;   // TF32 is requested, but its speed was not measured
  bool is_longest = false;        // data.layout dynamic: rows are at most this long
  bool is_packed = false;         // attention inside segments costs less than reported

  const RankPlan& of_rank(int rank) const;
  int64_t arena() const { return plans[0].memory.total(); }  // rank 0's
  int64_t largest_arena() const;
  int64_t sum_of_arenas() const;
  // Expected peak memory of the largest rank: its arena and its overhead
  // (planning/gpu_memory_check.h). Pages of other ranks' arenas that it reads count for those.
  int64_t resident() const { return largest_arena() + overhead(); }
  int64_t overhead(int rank = 0) const;  // of rank 0, which has the most
  // On the CPU: of all ranks and their supervisor, every page counted once.
  int64_t resident_total() const;
  int num_ranks_here() const { return ranks_of_node > 0 ? ranks_of_node : layout.num_ranks(); }
  int64_t resident_of_node() const;  // the part of the first one; all of it where there is one
  int64_t received() const;          // bytes that reach rank 0 from others in one step

  // Notes to the numbers: keys without effect, assumptions, why a time is missing.
  std::vector<std::string> notes() const;
  Json to_json() const;
  std::string to_text() const;
};

// with_dump: also the text of every node, and the picture of the memory.
PlanReport plan_run(const RunConfig& config, bool with_dump = false);

// Plans a model that is already open, with these kernels, and with speeds where known. cut: graphs
// that were cut for another shard of the same layout; null: none.
PlanReport plan_layout(const RunConfig& config, const Model& model, const Kernels& kernels,
                       const std::optional<Speeds>& speeds, bool with_dump = false,
                       const CutGraphs* cut = nullptr);

const char* axis_name(Axis axis);  // "tp", "dp"
// "4 ranks", "1 rank with a GPU", "4 ranks with a GPU each", "4 ranks that share a GPU".
std::string describe_ranks(int64_t ranks, bool is_on_gpu, int64_t ranks_on_a_gpu);
// "1.3 s", "84 ms", or why it is unknown.
std::string describe_step_time(const std::optional<double>& step_ms, int num_ranks, bool is_on_gpu);
// Printed after the time where is_step_of_fp32.
inline constexpr const char* kStepOfFp32 =
    "the speed is fp32's: TF32's is unknown until `weft doctor --measure` is run again";

}  // namespace weft
