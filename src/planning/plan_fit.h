// planning/plan_fit.h: the layouts of a number of ranks, with their needs, the best first.
//
// The rule: layouts that fit the memory come first; of these the one with the fewest bytes received
// per token (within 1 % they count as equal), then the one with the least memory. Layouts that do
// not fit follow, least memory first; then those that the model or the batch does not admit, with
// the reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "kernel/kernels.h"

namespace weft {

struct FitRow {
  int64_t dp = 1, tp = 1;
  std::string shard = "none";
  bool is_admissible = false, fits = false;
  std::string reason;  // why it is not admissible, or does not fit
  int64_t resident = 0, arena = 0;
  int64_t received = 0;  // bytes that reach a rank in one step
  double received_per_token = 0;
  std::optional<double> step_ms;
  bool is_step_of_fp32 = false;  // TF32 is requested, but its speed was not measured

  std::string layout() const;  // "dp=4,tp=2,shard=zero1"
};

// One change of the run file, or more ranks, and the layout that fits with it.
struct FitChange {
  std::string what;  // "set train.micro_batch: 8"
  int64_t ranks = 1;
  FitRow row;

  std::string text() const;
};

struct FitReport {
  int64_t memory = 0;  // bytes per rank; per GPU, where several ranks share it
  int64_t ranks = 1, ranks_on_a_gpu = 1;
  bool is_on_gpu = false;  // all rows and the advice
  int64_t overhead = 0;    // per rank: the minimum besides any arena (planning/gpu_memory_check.h)
  std::vector<FitRow> rows;
  std::vector<FitChange> advice;       // where none fits
  std::vector<std::string> tried;      // the changes that were tried
  int64_t num_plans = 0;               // made for the rows and the advice
  std::vector<int64_t> nearest_ranks;  // where none is admissible: the next fewer, the next more

  bool has_fit() const { return !rows.empty() && rows[0].fits; }
  bool has_admissible() const;
  int64_t memory_of_a_rank() const { return memory / ranks_on_a_gpu; }
  // The memory besides the arena leaves nothing for one, in any layout.
  bool is_below_overhead() const;
  Json to_json() const;
  std::string to_text() const;
};

struct FitOptions {
  const Kernels* kernels = nullptr;  // null: by launch.device, for this many ranks here
  bool may_share = true;             // WEFT_COMM=cuda_ipc: the memory is per GPU, for all its ranks
  bool with_advice = true;
};

// The run file's own dp, tp and shard are ignored. In exact mode only what exact mode admits. The
// device is decided once, for all layouts and the advice.
FitReport fit_layouts(const RunConfig& config, int64_t memory, int64_t ranks,
                      const FitOptions& options = {});

}  // namespace weft
