// train/saver.h: saves the state of a run: checkpoints of steps, the best, and pruning.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
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
#include "train/save_lane.h"
#include "train/snapshots.h"

namespace weft {

struct EvalPass;

struct TrainState {
  int64_t step = 0, updates = 0;
  StreamState position;
  std::optional<double> best;          // evaluation so far, by checkpoint.best
  std::optional<double> best_loss;     // its eval_loss, where checkpoint.best is a match
  int64_t best_step = -1;              // of it; -1: before this start
  int64_t evals_without_progress = 0;  // without a better value of checkpoint.best
  LossScaling scaling;
};

// In state.json, of a checkpoint.best that is a match: TrainState::best_loss.
inline constexpr const char* kLossOfBest = "eval_loss_of_best";

// UserError where an exact-mode checkpoint (its state.json) has other constants than the layout:
// the run's bits would then match neither.
void check_exact_constants(const Json& state, const Layout& layout);

// Each throws where it fails; a save is then given up (check), or is on this machine only (push).
struct SaveHooks {
  std::function<void()> check;      // before a save and its commit: this process may still write
  std::function<void()> push;       // after it, called by all ranks; empty: there is no other place
  std::function<void()> committed;  // a checkpoint is complete; empty: nobody wants to know
  std::function<Json()> about;      // what a slot holds besides state.json, of this step
  int64_t generation = 0;           // of the ranks that write, for state.json
};

// The slots that a run keeps its snapshots in, and what is in them where it continues from there.
struct SaverSlots {
  SlotPlace place;            // without slots: one copy in own memory, for checkpoints alone
  std::vector<int64_t> keep;  // steps
};

// All ranks save together: each its own slices, and rank 0 commits what all of them have written. A
// full or failing disk does not end a run: it is reported, in the log and if possible among the
// events, and retried at the next checkpoint. A BugError is not caught.
//
// With checkpoint.async a save copies the state and writes the copy on a thread of its own
// (docs/design/0012-saving.md). Its outcome counts only when it is asked for, by end_saves(), at
// the same step on all ranks: no step depends on how fast a disk is.
class Saver {
 public:
  // side_files: the files next to the weights in each checkpoint. Collected once: a save reads no
  // file of model.path, which may be gone by then. saved_step: of the checkpoint that the run
  // started from, or -1.
  Saver(const RunFile& file, std::map<std::string, std::string> side_files, Engine& engine,
        Ranks& ranks, std::filesystem::path dir, RunRecord& record, Json numerics,
        int64_t saved_step, SaveHooks hooks = {}, SaverSlots slots = {});
  ~Saver();

  // step-N, then prunes older ones by checkpoint.keep. The metrics up to the step are flushed
  // before it is committed. Ends earlier saves first, as end_saves() does.
  void save_step(TrainState* state);
  void save_step_now(TrainState* state);  // the same, complete when it returns
  // The evaluation of this step: best/ is written where checkpoint.best's measure is better than
  // before, or an equal match has a lower loss; the evaluations without a better measure are
  // counted. Where the disk fails the state becomes what it was, so that the next better one is
  // tried again.
  void keep_best(const EvalPass& pass, TrainState* state);

  // With slots: copies the state of this step, if that has not been done. has_met: since the last
  // update all ranks have met, so that all have waited for their last copies; else they meet here.
  void take_snapshot(const TrainState& state, bool has_met = false);
  bool has_slots() const { return snapshots_.has_slots(); }
  // Of the last one that is complete, and of the last copy on another node.
  double last_copy_s() const { return copy_s_; }
  double last_sent_s() const { return partner_ ? partner_->sent_s() : 0.0; }
  double last_wait_s() const { return wait_s_; }  // of wait_for_copy(), the last time
  bool has_copied() { return std::exchange(has_copied_, false); }  // since it was last asked
  // Writes what an earlier process left unwritten, from the slot of that step, and pushes it.
  struct Again {
    int64_t step;
    Json state;  // state.json
    bool best, checkpoint;
  };
  void save_again(Again save);

  // Before anything changes weights or states. The first call has the snapshot's memory allocated
  // in the background, where a save will need it: the first save then waits no longer than others.
  void wait_for_copy();
  // Until the last snapshot has its copy on another node, where it has one: before all ranks meet
  // and take the next. One that takes a third of the deadline is given up.
  void wait_for_partner();
  // Until all saves are complete; corrects `state` where best/ could not be written.
  void end_saves(TrainState* state);
  int64_t saved_step() const { return saved_step_; }    // after end_saves(); -1: none
  int64_t held_step() const { return snapshot_step_; }  // of a save that goes on; -1: none

 private:
  struct Save {
    std::filesystem::path folder;
    int64_t step;
    Json state;  // state.json
    bool is_best;
    bool has_snapshot = false;  // it is written in the background
  };
  double blocked_so_far() const;
  void reserve_snapshot();  // in the background
  void copy(int64_t step, const Json& state, bool has_met);
  void secure(const TrainState& state);
  void start(Save save);  // in the background
  WriteFile write_held();
  bool write(const Save& save, const WriteFile& write_file);
  void discard(const std::filesystem::path& folder);
  void finish(Save save, const WriteFile& write_file);  // writes, prunes, keeps the outcome
  void prune(int64_t step);
  void push(int64_t step);
  bool together(const std::string& what, int64_t step, const std::function<void()>& fn);
  Json to_json(const TrainState& state) const;
  void put_best(const std::optional<double>& value, const std::optional<double>& loss,
                int64_t evals_without_progress, Json* state) const;
  // Runs fn; a failure is reported as `what` and returns false. A BugError is not caught.
  bool guarded(const std::string& what, int64_t step, const std::function<void()>& fn);
  std::string best_key() const { return "best_" + file_.config().checkpoint.best; }

  const RunFile& file_;
  const std::map<std::string, std::string> side_files_;
  Engine& engine_;
  Ranks& ranks_;
  std::filesystem::path dir_;
  RunRecord& record_;
  Json numerics_;  // the fingerprint, for state.json
  const RankFile rank_file_;
  const SaveHooks hooks_;
  const std::shared_ptr<PartnerCopy> partner_;
  Snapshots snapshots_;
  bool has_reserved_ = false, has_copied_ = false;
  double wait_s_ = 0;
  std::atomic<double> copy_s_ = 0;
  std::exception_ptr copy_errors_[SnapshotSlots::kPerRank];  // of the slot's last copy
  // The step of the snapshot while a save from it is going on, else -1; the last jobs that copy
  // and that send the copy to another node.
  int64_t snapshot_step_ = -1, copied_ = 0, sent_ = 0;
  int64_t sent_step_ = -1, given_up_ = -1;  // of that last one; a job that nobody waits for
  // How long the loop has waited for this save, and since when (of the clock's ticks) it waits for
  // its end; 0: it does not.
  std::atomic<double> blocked_s_ = 0;
  std::atomic<std::chrono::steady_clock::rep> waits_since_ = 0;

  // Set by the thread that saves, read by the loop when it is done.
  int64_t saved_step_;
  bool has_best_failed_ = false;
  struct Best {
    std::optional<double> value, loss;
    int64_t step = -1, evals_without_progress = 0;
  } before_best_;  // what the state was before the best that is being written
  // Last: their jobs use all of the above. A copy does not wait for what is being written.
  SaveLane copies_, partner_lane_, lane_;
};

}  // namespace weft
