// train/trainer.cpp: how a rank starts: from the beginning, or from a checkpoint.
#include "train/trainer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/damaged.h"
#include "checkpoint/list.h"
#include "data/file_samples.h"
#include "net/regroup.h"
#include "train/faults.h"
#include "train/final_model.h"
#include "train/finished_run.h"
#include "train/generation_guard.h"
#include "train/lease.h"
#include "train/model_samples.h"
#include "train/numerics.h"
#include "train/rank_agreement.h"
#include "train/rank_trainer.h"
#include "train/run_history.h"
#include "train/run_report.h"

namespace weft {
namespace {

RankHost host_of(const RankPlace& place) {
  const int local = place.launched.all ? place.launched.local_rank : place.local_rank();
  return {host_name(), place.rank - local};
}

}  // namespace

Trainer::Trainer(const RunFile& file, const TrainOptions& options, RunStart start,
                 const RankPlace& place, const StopSignals& signals)
    : file_(file),
      signals_(signals),
      c_(file.config()),
      options_(options),
      place_(place),
      session_(c_),
      ranks_(make_ranks(c_, *session_.model, place)),
      starting_(std::in_place, ranks_->world()),
      is_main_(ranks_->rank() == 0),
      start_(std::move(start)),
      rows_(session_.open_train_rows()),
      side_files_(side_files(session_)),
      stream_(c_.data, *rows_, *session_.tokenizer, share(session_.train_stream())),
      backend_(open_device()),
      engine_(c_, *session_.model, ranks_.get(), *backend_.kernels, place.threads, backend_.device),
      pins_(place.slots
                ? std::make_shared<PinnedSlots>(place.slots, place.local_rank(), backend_.device)
                : nullptr),
      state_{0, 0, {}, std::nullopt, std::nullopt, -1, 0, LossScaling(c_, engine_)},
      numerics_(numerics_fingerprint(c_, ranks_->layout(), *backend_.kernels, *backend_.device)) {
  if (fault_) fault_->check(c_, ranks_->layout(), session_.model.get());
  meet_others();
}

// A GPU that is gone is a lost rank, not a mistake of the user's, who had it when the run began.
Backend Trainer::open_device() const {
  try {
    return place_.open_device ? place_.open_device() : open_backend(c_, place_.device_number());
  } catch (const UserError& e) {
    if (!ranks_->is_replacement()) throw;
    throw PeerError(
        fmt::format("the device of a replaced rank cannot be opened again: {}", e.what()));
  }
}

int Trainer::run() {
  for (bool is_continued = place_.is_continued();; is_continued = true) {
    try {
      return is_continued ? run_on() : run_to_the_end();
    } catch (const PeerError& e) {
      ranks_->world().abort(e.what());
      engine_.abort_queued();
      if (!park()) throw;
    }
  }
}

void Trainer::meet_others() {
  if (c_.has_eval() && !eval_stream_) {
    eval_rows_ = session_.open_eval_rows();
    make_eval_stream();
  }
  if (data_files_.empty() && ranks_->size() > 1)
    data_files_ = describe_files(rows_->files()) +
                  (eval_rows_ ? describe_files(eval_rows_->files()) : std::string());
  if (model_files_.empty() && ranks_->size() > 1) model_files_ = describe_model_files(session_);
  agree_on_inputs(*ranks_,
                  {file_.resolved(), data_files_, numerics_, model_files_, host_of(place_)});
  start_ = agree_on_start(*ranks_, start_);  // where a rank dies in it, the locks stay held
  make_answers();
}

void Trainer::make_eval_stream() {
  session_.check_eval_rows(*eval_rows_);
  eval_stream_ = std::make_unique<BatchStream>(c_.data, *eval_rows_, *session_.tokenizer,
                                               share(session_.eval_stream()));
}

void Trainer::make_answers() {
  if (c_.eval.generate > 0 && eval_stream_)
    answers_ = std::make_unique<TrainingAnswers>(session_, *eval_rows_, side_files_, &engine_,
                                                 ranks_.get());
}

// The rule is known only after the state is loaded. Runs that began with the old rule are rare. The
// ranks make the answers together: in a recovery, survivors know the rule and the replacement does
// not.
void Trainer::adopt_split() {
  const bool is_other = session_.splits_by_row != state_.position.splits_by_row;
  session_.splits_by_row = state_.position.splits_by_row;
  if (!eval_stream_ || c_.data.eval_fraction == 0) return;
  if (is_other) make_eval_stream();
  const std::vector<int64_t> others = gather_numbers(*ranks_, int64_t{is_other});
  if (*std::max_element(others.begin(), others.end()) != 0) make_answers();
}

int Trainer::run_to_the_end() {
  load_state();
  if (start_.finished_step) {
    log_info("{} is finished at step {}", start_.dir.string(), *start_.finished_step);
    return 0;
  }
  if (is_finished()) {
    log_info("{} is finished at step {}{}", start_.dir.string(), state_.step,
             way_to_continue(!is_past_end(state_.position.epoch)));
    return 0;
  }
  take_first_batch();
  open_run();
  return train();
}

int Trainer::run_on() {
  if (has_left_) rejoin();
  has_left_ = false;
  recover();
  return train();
}

int Trainer::train() {
  const int64_t first = state_.step + 1;
  int stop = loop();
  while (stop == kRegroup && !can_leave_layout()) stop = loop();
  if (stop != 0) return stopped_by(stop);
  if (fault_) fault_->check_fired(first, state_.step);
  return finish();
}

StreamOptions Trainer::share(StreamOptions options) const {
  take_share(c_, ranks_->layout(), ranks_->rank(), &options);
  return options;
}

void Trainer::load_state() {
  const TrainState initial = state_;
  std::string damage;
  do {
    if (start_.finished_step) return;
    state_ = initial;
    compare_start_files();
    damage = first_text(*ranks_, load_or_damage());
    if (!damage.empty()) start_another(damage);
  } while (!damage.empty());
  if (start_.checkpoint) stream_.restore(state_.position);
  adopt_split();
  const RunEnd end = find_end(c_, stream_, *ranks_);
  total_ = end.total;
  pack_size_ = end.pack_size;
}

// Compares the files that ranks read at the start. One rank per node hashes the weights.
void Trainer::compare_start_files() {
  const RankHost host = host_of(place_);
  if (start_.checkpoint) {
    const std::string text = ranks_->size() > 1 ? describe_checkpoint(*start_.checkpoint) : "";
    agree_on_files(*ranks_, host, "file of " + start_.checkpoint->string(), text);
  } else if (ranks_->layout().is_exact && c_.model.init != "random" &&
             has_several_hosts(*ranks_, host)) {
    const bool is_first = ranks_->rank() == host.first_rank;
    agree_on_files(*ranks_, host, "model file (name, size, hash of every byte)",
                   is_first ? describe_whole_weights(session_) : "");
  }
}

std::string Trainer::load_or_damage() {
  try {
    loaded_ = load_start(start_, session_, ranks_->layout(), numerics_, options_.convert_states,
                         &engine_, &state_);
    return "";
  } catch (const DamagedCheckpoint& e) {
    return e.what();
  }
}

void Trainer::start_another(const std::string& damage) {
  if (is_main_) start_ = choose_again(file_, options_, std::move(start_), damage);
  start_ = agree_on_start(*ranks_, std::move(start_));
}

bool Trainer::is_finished() const {
  if (options_.overwrite || !has_final(start_.dir)) return false;
  return loaded_.saved_step == state_.step &&
         (is_past_end(state_.position.epoch) || is_stalled()) &&
         read_history(start_.dir).finished_step == state_.step;
}

bool Trainer::is_past_end(int64_t epoch) const {
  return state_.step >= total_ || (!c_.train.steps && epoch > c_.train.epochs);
}

void Trainer::take_first_batch() {
  if (is_past_end(state_.position.epoch)) return;
  stream_.next(batch_);
  has_batch_ = true;
  if (batch_.has_targets || state_.updates > 0) return;
  require_targets(c_, state_.position, total_ - state_.step, stream_);
}

void Trainer::open_run() {
  // Every rank has read its part of a checkpoint, so files may be changed now; and nobody waits
  // long for rows or for another rank from here on.
  ranks_->world().barrier();
  signals_.hold();
  if (is_main_) prepare_run_dir(file_, &start_, state_.step, options_.overwrite);
  if (is_main_ && place_.world) place_.world->note_opened();
  ranks_->world().barrier();
  set_log_file(start_.dir / "log" / fmt::format("rank-{:05}.log", ranks_->rank()));
  record_ = std::make_unique<RunRecord>(record_options());
  make_saver(loaded_.saved_step, {reserved_slots(), {}});
  const RunLength length =
      total_ != kNoEnd ? RunLength{total_}
                       : most_steps(stream_.num_raw_rows(), c_.train.global_batch, c_.train.epochs);
  report_start({file_, start_, session_, *backend_.device, state_, loaded_, length, pack_size_,
                *rows_, eval_rows_.get(), place_.world ? place_.world->run_generation() : 0},
               engine_, *ranks_, *record_);
  hashes_ = TensorHashes::from_environment(engine_, *session_.model, *ranks_, c_.train.optimizer,
                                           start_.dir, state_.step);
  make_steps();
  if (fault_) fault_->warn();
  if (start_.checkpoint)
    log_info("resumed from {} at step {}", start_.checkpoint->string(), state_.step);
  // Only the writer has read the old lines.
  evaluated_ = agree_on_number(*ranks_, [&] { return record_->last_eval_step(); });
  cadence_ = SnapshotCadence(c_.launch.snapshot_steps(), cadence_kind());
  saver_->take_snapshot(state_);
  starting_.reset();
  record_->restart_clock();
}

RecordOptions Trainer::record_options() const {
  return {start_.dir,
          is_main_,
          options_.quiet || !is_main_,
          start_.is_of_other_run ? 0 : state_.step,
          options_.resume != "auto" && options_.resume != "never",
          total_ == kNoEnd ? 0 : total_,
          c_.train.log_every,
          backend_.device->is_host() ? 0 : engine_.arena_bytes(),
          std::nullopt};
}

void Trainer::make_saver(int64_t saved_step, SaverSlots slots) {
  saver_ = std::make_unique<Saver>(file_, side_files_, engine_, *ranks_, start_.dir, *record_,
                                   numerics_, saved_step, save_hooks(), std::move(slots));
}

void Trainer::make_steps() {
  steps_ = std::make_unique<StepRunner>(StepRunner::Run{c_, start_.dir, engine_, *ranks_, *record_,
                                                        *saver_, fault_, hashes_.get(), total_},
                                        &state_);
}

SaveHooks Trainer::save_hooks() {
  SaveHooks hooks;
  // Ranks that have to park do not wait for an upload, which goes on without them.
  const auto is_parking = [this] { return ranks_->world().is_aborted(); };
  hooks.check = [this, is_parking, guard = GenerationGuard(place_.world)] {
    if (start_.remote) start_.remote->wait_for_push(is_parking);
    check_run_is_ours(start_);
    guard.check();
  };
  hooks.generation = place_.world ? place_.world->run_generation() : 0;
  hooks.about = [this] { return about(); };
  hooks.committed = [this] {
    if (place_.world && is_main_) place_.world->note_saved();
  };
  if (run_address_of(c_, options_).empty()) return hooks;
  hooks.push = [this, is_parking] {
    if (start_.remote) start_.remote->push_until(c_.checkpoint.keep, is_parking);
  };
  return hooks;
}

int train_rank(const RunFile& file, const TrainOptions& options, const RankPlace& place) {
  const StopSignals signals(place.world.get());  // first: a signal at any time ends cleanly
  // Rank 0 determines where the run starts; its errors end all ranks.
  RunStart start;
  if (place.rank == 0)
    start = place.is_continued() ? reopen_run_dir(file, options) : open_run_dir(file, options);
  return Trainer(file, options, std::move(start), place, signals).run();
}

}  // namespace weft
