// train/saver.h: saves the state of a run: checkpoints of steps, the best, and pruning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "config/run_config.h"
#include "data/batches.h"
#include "train/engine.h"
#include "train/loss_scaling.h"
#include "train/record.h"

namespace weft {

struct TrainState {
  int64_t step = 0, updates = 0;
  StreamState position;
  std::optional<double> best;          // evaluation so far, by checkpoint.best
  int64_t evals_without_progress = 0;  // since then
  LossScaling scaling;
};

// UserError where an exact-mode checkpoint (its state.json) has other constants than the layout:
// the run's bits would then match neither.
void check_exact_constants(const Json& state, const Layout& layout);

// All ranks save together: each its own slices, and rank 0 commits what all of them have written. A
// full or failing disk does not end a run: it is reported, in the log and if possible among the
// events, and retried at the next checkpoint. A BugError is not caught.
class Saver {
 public:
  // side_files: the files next to the weights in each checkpoint. Collected once: a save reads no
  // file of model.path, which may be gone by then.
  Saver(const RunFile& file, std::map<std::string, std::string> side_files, Engine& engine,
        Ranks& ranks, std::filesystem::path dir, RunRecord& record, Json numerics)
      : file_(file),
        side_files_(std::move(side_files)),
        engine_(engine),
        ranks_(ranks),
        dir_(std::move(dir)),
        record_(record),
        numerics_(std::move(numerics)) {}

  // Returns whether it was written. The metrics up to the step are flushed before it is committed.
  bool save_step(const TrainState& state);  // step-N; then prunes older ones by checkpoint.keep
  // The value of checkpoint.best's measure at this step: best/ is written where it is better than
  // before, and the evaluations without progress are counted. Where the disk fails the state stays
  // as it was, so that the next better one is tried again.
  void keep_best(const std::optional<double>& value, TrainState* state);

 private:
  bool write(const std::filesystem::path& folder, const TrainState& state);
  Json to_json(const TrainState& state) const;
  // Runs fn; a failure is reported as `what` and returns false. A BugError is not caught.
  bool guarded(const std::string& what, int64_t step, const std::function<void()>& fn);

  const RunFile& file_;
  const std::map<std::string, std::string> side_files_;
  Engine& engine_;
  Ranks& ranks_;
  std::filesystem::path dir_;
  RunRecord& record_;
  Json numerics_;  // the fingerprint, for state.json
};

}  // namespace weft
