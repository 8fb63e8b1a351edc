// train/trainer_recovery.cpp: how a rank outlives others: snapshots, parking, going back.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/log.h"
#include "checkpoint/list.h"
#include "train/rank_agreement.h"
#include "train/rank_trainer.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kFreed{5};

}  // namespace

bool Trainer::park() {
  ranks_->note_phase(Phase::kParking);  // it has noticed; a write in progress is completed first
  if (!place_.slots || !place_.world->recovers()) return false;
  steps_.reset();
  hashes_.reset();
  saver_.reset();
  drop_steps();
  record_.reset();
  answers_.reset();
  starting_.reset();
  ranks_->leave();
  has_left_ = true;
  return place_.world->park(place_.local_rank());
}

// A GPU with a sticky error fails here again: this process ends, and is replaced like a dead one.
// What it says now keeps the supervisor from looking for a hang while it ends.
void Trainer::drop_steps() {
  try {
    engine_.drop_steps();
  } catch (const PeerError& e) {
    place_.world->note_failure(place_.local_rank(), e.what());
    throw;
  }
}

void Trainer::rejoin() {
  ranks_->note_phase(Phase::kRecovering, place_.world->start_step());
  ranks_->rejoin();
  starting_.emplace(ranks_->world());
  engine_.rejoin();
  meet_others();
}

// A rank that was interrupted in the passes of the next step still has the state in its arena: what
// it would read, from other nodes too, is what it has. fp16 counts an update that it skipped.
SlotText Trainer::load_slots(int64_t step) {
  SlotText text = read_slot_text(place_, step);
  const int64_t updates = text.state.at("updates").as_int();
  if (engine_.whole_update() == updates && !c_.scales_loss()) return text;
  RemoteSlots others(place_);
  engine_.load_checkpoint(open_snapshots(place_, step, engine_.weights().needed_slices(), &others));
  engine_.set_whole_update(updates);
  return text;
}

// In another layout than the one whose slots these are (docs/design/0022-elastic.md).
SlotText Trainer::load_previous(int64_t step) {
  RemoteSlots previous(place_, true);
  SlotText text = read_previous_text(place_, *ranks_, step, &previous);
  if (is_main_) check_no_newer(place_, start_.dir, step);
  check_exact_constants(text.state, ranks_->layout());
  engine_.load_checkpoint(
      open_previous(place_, step, engine_.weights().needed_slices(), text.state, &previous));
  return text;
}

void Trainer::recover() {
  const int64_t step = place_.world->start_step();
  ranks_->note_phase(Phase::kRecovering, step);
  const bool is_previous = place_.has_previous_slots();
  const SlotText text = is_previous ? load_previous(step) : load_slots(step);
  state_ = {0, 0, {}, std::nullopt, std::nullopt, -1, 0, state_.scaling};
  read_state(text.state, c_, true, &engine_, &state_);
  state_.best_step = text.about.at("best_step").as_int();
  total_ = text.about.at("total").as_int();
  evaluated_ = text.about.at("evaluated").as_int();
  counters_ = counters_from_json(text.about.at("counters"));
  cadence_ = SnapshotCadence(text.about.at("every").as_int(), cadence_kind());
  stream_.restore(state_.position);
  stream_.set_counters(counters_);
  adopt_split();
  has_batch_ = false;
  loaded_ = {};
  loaded_.saved_step = step;  // an evaluation that is due there may be missing
  reopen_run(text, is_previous);
}

// The agent frees the slots of the previous layout when it sees that all ranks have loaded; a late
// one only costs memory.
void Trainer::await_freed_memory() {
  place_.world->note_loaded();
  const auto end = std::chrono::steady_clock::now() + kFreed;
  while (place_.world->has_previous_slots() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Trainer::reopen_run(const SlotText& text, bool is_previous) {
  signals_.hold();
  if (is_main_) tidy_run_dir(start_.dir);
  Saver::Again unfinished =
      is_previous ? find_missing_save(*ranks_, c_, start_.dir, state_.step, text)
                  : find_unfinished_save(place_, *ranks_, c_, start_.dir, state_.step);
  const int64_t saved = agree_on_number(*ranks_, [&] {
    return is_checkpoint(checkpoint_path(start_.dir, state_.step)) ? state_.step : -1;
  });
  ranks_->world().barrier();  // all have read the slots, which may be overwritten from here on
  if (is_main_) place_.world->note_opened();
  if (is_previous) await_freed_memory();
  set_log_file(start_.dir / "log" / fmt::format("rank-{:05}.log", ranks_->rank()));
  RecordOptions record = record_options();
  record.saved = text.about.at("record");
  record_ = std::make_unique<RunRecord>(record);
  if (is_previous)
    make_saver(saved, {reserved_slots(), {}});
  else
    make_saver(saved, {slot_place(), {state_.step, unfinished.step}});
  hashes_ = TensorHashes::from_environment(
      engine_, *session_.model, *ranks_, c_.train.optimizer, start_.dir, state_.step,
      std::max<int64_t>(0, text.about.at("hashes_bytes").as_int()));
  make_steps();
  saver_->take_snapshot(state_);  // where the slots are new
  saver_->save_again(std::move(unfinished));
  report_recovery();
  starting_.reset();
  record_->restart_clock();
}

void Trainer::report_recovery() {
  const double seconds = 1e-3 * static_cast<double>(monotonic_ms() - place_.world->death_ms());
  record_->try_event("recovered", {{"step", Json(state_.step)},
                                   {"generation", Json(place_.world->run_generation())},
                                   {"lost_steps", Json(place_.world->last_step() - state_.step)},
                                   {"snapshot_every", Json(cadence_.distance())},
                                   {"seconds", Json(seconds)}});
  if (is_main_)
    log_info("continuing from step {} after {:.2f} s, as generation {}", state_.step, seconds,
             place_.world->run_generation());
}

Json Trainer::about() const {
  Json kept;
  kept.set("record", record_->save());
  kept.set("counters", counters_to_json(counters_));
  kept.set("total", Json(total_));
  kept.set("evaluated", Json(evaluated_));
  kept.set("hashes_bytes", Json(hashes_ ? hashes_->bytes() : int64_t{-1}));
  kept.set("every", Json(cadence_.every()));
  kept.set("held", Json(saver_->held_step()));
  kept.set("best_step", Json(state_.best_step));
  return kept;
}

SlotPlace Trainer::slot_place() const {
  return place_.slots ? SlotPlace{place_.slots, place_.local_rank(), place_.world->run_generation(),
                                  pins_, PartnerCopy::of(place_)}
                      : SlotPlace{};
}

SlotPlace Trainer::reserved_slots() {
  const SlotPlace place = slot_place();
  if (!place.slots) return {};
  const RankFile file(engine_.weights().checkpoint_slices(), ranks_->rank());
  std::string why = reserve_slots(place, file);
  if (!why.empty())
    why = fmt::format("rank {} has no memory for snapshots: {}", ranks_->rank(), why);
  why = first_text(*ranks_, why);
  if (why.empty()) return place;
  if (is_main_) log_warning("{}; where a rank dies, all start from a checkpoint", why);
  return {};
}

SnapshotCadence::Kind Trainer::cadence_kind() const {
  using Kind = SnapshotCadence::Kind;
  if (PartnerCopy::has_partner(place_)) return Kind::kNodes;
  return backend_.device->is_host() ? Kind::kHost : Kind::kGpu;
}

void Trainer::snapshot_if_due() {
  if (!saver_->has_slots() || !cadence_.is_due(state_.step)) return;
  steps_->end_pending();  // a copy does not wait for an update that a GPU still works on
  saver_->take_snapshot(state_, true);
}

void Trainer::note_step(double seconds) {
  counters_ = stream_.counters();
  if (place_.world && is_main_) place_.world->note_step(state_.step);
  if (place_.world && (is_main_ || place_.node)) {  // of several nodes each rank has its own
    hang_rule_.note_step(std::llround(1e3 * seconds));
    const int64_t deadline_ms = hang_rule_.allowed_ms(kDeadlineMs);
    if (c_.launch.hang_timeout_s == 0 && deadline_ms > kDeadlineMs)
      ranks_->world().set_deadline_ms(deadline_ms);
  }
  if (saver_->has_slots()) note_snapshots(seconds);
}

void Trainer::note_snapshots(double seconds) {
  const auto largest_of_ranks = [&](int64_t number) {
    const std::vector<int64_t> numbers = gather_numbers(*ranks_, number);
    return *std::max_element(numbers.begin(), numbers.end());
  };
  const bool has_copy = saver_->has_copied();
  if (cadence_.waits_for_partner()) saver_->wait_for_partner();
  const bool is_known = cadence_.note(
      {seconds, has_copy, saver_->last_copy_s(), saver_->last_wait_s(), saver_->last_sent_s()});
  if (cadence_.needs_spacing()) cadence_.space(largest_of_ranks(cadence_.fewest_steps()));
  if (!is_known) return;
  cadence_.choose(largest_of_ranks(cadence_.wish()));
  const int64_t every = cadence_.every();
  if (is_main_)
    log_info("a snapshot in memory every {}, from step {} on",
             every == 1 ? "step" : fmt::format("{} steps", every), state_.step);
}

}  // namespace weft
