// planning/layout.h: parallel.* of a run file, resolved for a model: each rank's coordinates.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "model/model.h"
#include "parallel/data_parallel.h"
#include "parallel/tensor_parallel.h"

namespace weft {

// rank = dp_rank * tp + tp_rank. In exact mode contractions over cut dims are exact_tp leaves and
// the leaves of a global batch (exact_rows rows each) form exact_dp groups; dp divides the leaves.
struct Layout {
  int dp = 1, tp = 1;
  Shard shard = Shard::kNone;
  bool is_exact = false;
  int exact_tp = 1;
  int64_t exact_dp = 1, exact_rows = 1;
  // Maximum number of neighbours on the tensor axis with the same key/value heads, where that is
  // not the whole axis.
  int copies = 1;
  int64_t spread_units = 0;  // key/value heads, where neither their number nor tp divides the other

  int num_ranks() const { return dp * tp; }
  int dp_rank(int rank) const { return rank / tp; }
  int tp_rank(int rank) const { return rank % tp; }
  // The groups of ranks that hold copies of the same heads: a color per rank, and two where a rank
  // may share heads with ranks on both sides.
  std::vector<std::vector<int>> copy_groups() const;
  TensorParallel tensor(int rank) const;
  DataParallel data(int rank, int64_t num_passes) const;
};

// UserError naming the admissible values and the reason where the model or the batch cannot be cut
// this way.
Layout resolve_layout(const RunConfig& config, const Model& model);

// The same from the run file alone: the model's config.json is read.
Layout check_layout(const RunConfig& config);

Cuts cuts_of(const Model& model);
std::string describe(const Layout& layout);  // "dp=2,tp=2,shard=zero1"

}  // namespace weft
