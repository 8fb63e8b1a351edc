// train/rank_trainer.h: one rank's training: what it holds, and what it does in which order.
//
// Every rank runs the same loop. The ranks agree on external decisions (the checkpoint to start
// from, a signal), so that all do the same at the same step; only rank 0 writes records.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/comm.h"
#include "config/session.h"
#include "planning/backend.h"
#include "planning/fault.h"
#include "train/data_notes.h"
#include "train/engine.h"
#include "train/hang_rule.h"
#include "train/rank_place.h"
#include "train/record.h"
#include "train/recovery.h"
#include "train/run_dir.h"
#include "train/run_history.h"
#include "train/saver.h"
#include "train/signals.h"
#include "train/snapshot_cadence.h"
#include "train/start_state.h"
#include "train/step_runner.h"
#include "train/tensor_hashes.h"
#include "train/training_answers.h"

namespace weft {

class Trainer {
 public:
  Trainer(const RunFile& file, const TrainOptions& options, RunStart start, const RankPlace& place,
          const StopSignals& signals);

  // A failure here is reported to the others at once: this rank's destructors may wait for a lost
  // GPU. Where a run survives the death of a rank, this one waits for its replacement.
  int run();

 private:
  Backend open_device() const;

  // What the ranks of a run settle before anything else, together with those that are replaced.
  void meet_others();
  void make_eval_stream();
  void make_answers();
  void adopt_split();  // collective
  int run_to_the_end();
  int run_on();
  int train();

  // ------------------------------------------------------------------ recovery
  // After the death of another rank. Nothing of this one is in flight or touches shared memory when
  // it parks; what it needs to go on are its model, plan and rows. False: the run ends.
  bool park();
  void drop_steps();
  void rejoin();

  // All ranks, survivors and replacements, go back to a step that the slots of all hold.
  void recover();
  SlotText load_slots(int64_t step);
  SlotText load_previous(int64_t step);
  void reopen_run(const SlotText& text, bool is_previous);
  void await_freed_memory();
  void report_recovery();

  // What a slot holds besides state.json.
  Json about() const;
  SlotPlace slot_place() const;

  // All ranks have slots, or none.
  SlotPlace reserved_slots();
  void snapshot_if_due();

  // Collective where the cadence is found.
  void note_step(double seconds);
  void note_snapshots(double seconds);
  SnapshotCadence::Kind cadence_kind() const;

  // ------------------------------------------------------------------ start
  // This rank tokenizes only the rows that it computes.
  StreamOptions share(StreamOptions options) const;
  void load_state();

  // Throws UserError if the start files of a node differ from those of the others.
  void compare_start_files();

  // Each rank reads its slices, and checks what it reads. "", or what is damaged.
  std::string load_or_damage();

  // The checkpoint before the damaged one; rank 0 decides, as at first.
  void start_another(const std::string& damage);

  // A final/ may belong to an earlier end: of a run that was killed before it replaced it.
  bool is_finished() const;

  // train.early_stop ends the run here.
  bool is_stalled() const { return weft::is_stalled(c_.train, state_.evals_without_progress); }

  bool is_past_end(int64_t epoch) const;

  // Untrainable rows are detected here, before anything is written or discarded.
  void take_first_batch();

  // From here on the run directory belongs to this run.
  void open_run();
  RecordOptions record_options() const;
  void make_saver(int64_t saved_step, SaverSlots slots);
  void make_steps();
  SaveHooks save_hooks();

  // ------------------------------------------------------------------ loop
  int loop();

  // The next batch in batch_, or why all ranks stop here.
  int take_batch();

  // A signal interrupted the evaluation of the saved step.
  bool is_eval_missing() const;
  bool is_due(int64_t every, const Batch& batch) const;

  // Work between steps does not count in their time.
  template <typename Fn>
  void aside(const Fn& fn) {
    steps_->end_pending();
    record_->clear_progress();
    fn();
    record_->restart_clock();
  }

  int evaluate_aside();

  // Why it was ended early, or 0.
  int evaluate();

  // ------------------------------------------------------------------ saving
  bool is_saved() const { return saver_->saved_step() == state_.step; }

  int stopped_by(int signal);
  bool can_leave_layout();
  int leave_layout();
  int finish();
  void write_last_model(bool has_whole);

  const RunFile& file_;
  const StopSignals& signals_;
  const RunConfig& c_;
  const std::optional<Fault> fault_ = Fault::from_environment();
  TrainOptions options_;
  const RankPlace place_;
  Session session_;
  std::unique_ptr<Ranks> ranks_;
  std::optional<ScopedNoDeadline> starting_;  // reading, tokenizing and counting may take long
  const bool is_main_;
  RunStart start_;
  std::unique_ptr<RowSource> rows_, eval_rows_;
  const std::map<std::string, std::string> side_files_;  // read once: saves do not read them again
  BatchStream stream_;
  std::unique_ptr<BatchStream> eval_stream_;
  Backend backend_;
  Engine engine_;
  const std::shared_ptr<PinnedSlots> pins_;   // null: no slots
  std::unique_ptr<TrainingAnswers> answers_;  // null: none are generated
  TrainState state_;
  const Json numerics_;      // the fingerprint
  std::string data_files_;   // describe_files
  std::string model_files_;  // describe_model_files
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<TensorHashes> hashes_;  // null: not requested
  std::unique_ptr<StepRunner> steps_;
  std::optional<PackSize> pack_size_;  // of the first epoch, where it was counted
  Batch batch_;
  bool has_batch_ = false;  // the next one is in batch_ already
  bool is_early_ = false;   // train.early_stop ended the loop
  bool has_left_ = false;   // it has parked, and has no groups
  std::exception_ptr rows_error_;
  DataNotes notes_;
  DataCounters counters_;  // of the steps so far: a batch that was only taken does not count
  SnapshotCadence cadence_;
  HangRule hang_rule_;

  LoadedStart loaded_;
  int64_t evaluated_ = -1, total_ = kNoEnd;
};

}  // namespace weft
