// train/start_state.h: the state from which a run starts, and the step at which it ends.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "config/session.h"
#include "data/batches.h"
#include "train/engine.h"
#include "train/loss_scaling.h"
#include "train/run_dir.h"

namespace weft {

inline constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

struct StartState {
  int64_t step = 0, updates = 0;
  int64_t saved_step = -1;  // the checkpoint's, where it is the run's own step-N
  StreamState position;
  std::optional<double> best_eval;
};

// Fills the engine: from the checkpoint, from the weights of model.path, or at random. Collective.
// UserError where the checkpoint belongs to another model or has other exact constants.
StartState load_start(const RunStart& start, const Session& session, const Layout& layout,
                      const Json& numerics, Engine* engine, LossScaling* scaling);

struct RunEnd {
  int64_t total = kNoEnd;             // the last step, where known
  std::optional<PackSize> pack_size;  // of the first epoch, where it was counted; rank 0
};

// The last step, where it must be known: given, or counted for a schedule that needs the end.
// Collective.
RunEnd find_end(const RunConfig& config, BatchStream& stream, Ranks& ranks);

// UserError where no row of the next `num_steps` steps has a target.
void require_targets(const RunConfig& config, const StreamState& from, int64_t num_steps,
                     BatchStream& stream);

}  // namespace weft
