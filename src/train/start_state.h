// train/start_state.h: the state from which a run starts, and the step at which it ends.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "config/session.h"
#include "data/batches.h"
#include "train/engine.h"
#include "train/run_dir.h"
#include "train/saver.h"

namespace weft {

inline constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

struct LoadedStart {
  int64_t saved_step = -1;  // of the checkpoint, where it is the run's own step-N
  int64_t bytes = 0;        // of its slices, read by this rank
  double seconds = 0;       // for that
  std::string conversion;   // of weights and states, in words; empty: none
};

// Fills the engine: from the checkpoint, of which this rank reads its slices only, from the weights
// of model.path, or at random; and the state, from a checkpoint. converts: weights and states of
// another precision are converted. UserError where the checkpoint belongs to another model or has
// other exact constants; DamagedCheckpoint where what this rank
// needs of it is damaged.
LoadedStart load_start(const RunStart& start, const Session& session, const Layout& layout,
                       const Json& numerics, bool converts, Engine* engine, TrainState* state);

// The state from a state.json. with_best: also the best evaluation.
void read_state(const Json& stored, const RunConfig& config, bool with_best, Engine* engine,
                TrainState* state);

// Whether the run of this state.json selects its evaluation rows by the old rule (EvalSplit).
bool splits_by_row(const Json& state);

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
