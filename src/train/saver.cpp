// train/saver.cpp: the contents of a checkpoint's state.json, and how write failures are handled.
#include "train/saver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "comm/comm.h"
#include "train/eval_pass.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// The constants that the bits depend on; null: not exact mode.
Json exact_to_json(const Layout& layout) {
  if (!layout.is_exact) return Json();
  Json exact;
  exact.set("exact_tp", Json(layout.exact_tp));
  exact.set("exact_dp", Json(layout.exact_dp));
  exact.set("exact_rows", Json(layout.exact_rows));
  return exact;
}

// Adds the time of its life to a number.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<double>* sum) : sum_(sum) {}
  ~Stopwatch() { *sum_ = *sum_ + seconds_since(began_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<double>* sum_;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

void check_exact_constants(const Json& state, const Layout& layout) {
  const Json* stored = state.find("exact");
  const Json now = exact_to_json(layout);
  const bool was_exact = stored && stored->is_object();
  if (was_exact != layout.is_exact) {
    log_info("parallel.mode was {}: the bits are those of {} mode from here on only",
             was_exact ? "exact" : "fast", layout.is_exact ? "exact" : "fast");
    return;
  }
  if (!was_exact || *stored == now) return;
  std::string before, after, sets;
  for (const auto& [key, value] : now.as_object()) {
    const Json* old = stored->find(key);
    if (old && *old == value) continue;
    const char* comma = before.empty() ? "" : ", ";
    before += fmt::format("{}{}={}", comma, key, old ? old->dump() : "unknown");
    after += fmt::format("{}{}={}", comma, key, value.dump());
    if (old) sets += fmt::format(" --set parallel.{}={}", key, old->dump());
  }
  throw UserError(fmt::format("the checkpoint was trained in exact mode with {}, but this run has "
                              "{}: its bits would change",
                              before, after),
                  fmt::format("continue with{}, or give the run another name", sets));
}

Saver::Saver(const RunFile& file, std::map<std::string, std::string> side_files, Engine& engine,
             Ranks& ranks, std::filesystem::path dir, RunRecord& record, Json numerics,
             int64_t saved_step, SaveHooks hooks, SaverSlots slots)
    : file_(file),
      side_files_(std::move(side_files)),
      engine_(engine),
      ranks_(ranks),
      dir_(std::move(dir)),
      record_(record),
      numerics_(std::move(numerics)),
      rank_file_(engine.weights().checkpoint_slices(), ranks.rank()),
      hooks_(std::move(hooks)),
      partner_(slots.place.partner),
      snapshots_(rank_file_, engine.executor().device(), std::move(slots.place), slots.keep),
      saved_step_(saved_step) {
  // Where it continues, the partner may be a new one.
  if (!partner_) return;
  for (const int64_t step : slots.keep) {
    sent_ = partner_lane_.post([this, step] { partner_->send(step); });
    sent_step_ = std::max(sent_step_, step);
  }
}

// A copy that is under way is not waited for: a partner that is gone would hold up the rank.
Saver::~Saver() {
  if (partner_) partner_->shut_down();
}

void Saver::save_step(TrainState* state) {
  const ScopedPhase saving(ranks_.heartbeat(), Phase::kSaving);
  if (!file_.config().checkpoint.async) return save_step_now(state);
  if (snapshot_step_ != state->step) end_saves(state);
  const Stopwatch watch(&blocked_s_);
  start({checkpoint_path(dir_, state->step), state->step, to_json(*state), false});
}

void Saver::save_step_now(TrainState* state) {
  const ScopedPhase saving(ranks_.heartbeat(), Phase::kSaving);
  end_saves(state);
  if (saved_step_ == state->step) return;
  secure(*state);
  finish({checkpoint_path(dir_, state->step), state->step, to_json(*state), false}, write_held());
}

// Without a copy of the state.
WriteFile Saver::write_held() {
  Device* device = engine_.executor().device();
  RankFile::Read read;
  if (!device->is_host()) {
    read = [device](void* to, const void* from, size_t bytes) {
      device->read(to, from, static_cast<int64_t>(bytes));
    };
  }
  return [this, read](const std::filesystem::path& into) { return rank_file_.write(into, read); };
}

void Saver::keep_best(const EvalPass& pass, TrainState* state) {
  const ScopedPhase saving(ranks_.heartbeat(), Phase::kSaving);
  end_saves(state);
  const std::string& measure = file_.config().checkpoint.best;
  const std::optional<double> value = pass.value(measure);
  if (!value) return;
  const bool is_progress = is_better(measure, *value, state->best);
  if (!is_progress) ++state->evals_without_progress;
  const bool is_tie_won = measure != "eval_loss" && value == state->best && pass.loss &&
                          is_better("eval_loss", *pass.loss, state->best_loss);
  if (!is_progress && !is_tie_won) return;
  before_best_ = {state->best, state->best_loss, state->best_step, state->evals_without_progress};
  state->best = value;
  if (measure != "eval_loss") state->best_loss = pass.loss;
  state->best_step = state->step;
  if (is_progress) state->evals_without_progress = 0;
  Save save{dir_ / "checkpoints" / "best", state->step, to_json(*state), true};
  if (file_.config().checkpoint.async) return start(std::move(save));
  secure(*state);
  finish(std::move(save), write_held());
  end_saves(state);
}

double Saver::blocked_so_far() const {
  const Clock::rep since = waits_since_;
  const double now_s = since ? seconds_since(Clock::time_point(Clock::duration(since))) : 0;
  return blocked_s_ + now_s;
}

void Saver::end_saves(TrainState* state) {
  const ScopedPhase saving(ranks_.heartbeat(), Phase::kSaving);
  waits_since_ = Clock::now().time_since_epoch().count();
  lane_.wait();
  waits_since_ = 0;
  blocked_s_ = 0;  // of the next save
  snapshot_step_ = -1;
  snapshots_.release();
  if (!std::exchange(has_best_failed_, false)) return;
  state->best = before_best_.value;
  state->best_loss = before_best_.loss;
  state->best_step = before_best_.step;
  state->evals_without_progress = before_best_.evals_without_progress;
}

void Saver::start(Save save) {
  if (snapshot_step_ != save.step) {
    if (!has_slots() || !snapshots_.find(save.step)) copy(save.step, save.state, false);
    snapshot_step_ = save.step;
    snapshots_.hold(*snapshots_.find(save.step));
  }
  save.has_snapshot = true;
  const int slot = *snapshots_.find(save.step);
  lane_.post([this, save = std::move(save), slot, copied = copied_, sent = sent_] {
    copies_.wait_for(copied);
    partner_lane_.wait_for(sent);
    finish(save, [this, slot](const std::filesystem::path& into) {
      if (copy_errors_[slot]) std::rethrow_exception(copy_errors_[slot]);
      return rank_file_.write_image(into, snapshots_.image(slot));
    });
  });
}

void Saver::save_again(Again save) {
  if (save.best) start({dir_ / "checkpoints" / "best", save.step, save.state, true});
  if (save.checkpoint)
    start({checkpoint_path(dir_, save.step), save.step, std::move(save.state), false});
  // The earlier process may have committed it, and not pushed it.
  if (!save.best && !save.checkpoint && hooks_.push)
    lane_.post([this, step = save.step] { push(step); });
}

void Saver::finish(Save save, const WriteFile& write_file) {
  if (!save.is_best && has_best_failed_)  // that of the same step
    put_best(before_best_.value, before_best_.loss, before_best_.evals_without_progress,
             &save.state);
  const bool is_written = write(save, write_file);
  if (save.is_best) {
    has_best_failed_ = !is_written;
  } else if (is_written) {
    saved_step_ = save.step;
    prune(save.step);
  }
  if (!is_written) return;
  if (hooks_.committed) hooks_.committed();
  push(save.step);
}

void Saver::prune(int64_t step) {
  together("older checkpoints could not be removed", step, [&] {
    if (ranks_.rank() != 0) return;
    if (hooks_.check) hooks_.check();
    prune_checkpoints(dir_, file_.config().checkpoint.keep, step);
  });
}

void Saver::push(int64_t step) {
  if (hooks_.push) together("the checkpoint is on this machine only", step, hooks_.push);
}

// Every stage is done by all ranks or abandoned by all: nobody waits for a failed one.
bool Saver::together(const std::string& what, int64_t step, const std::function<void()>& fn) {
  const bool is_done = guarded(what, step, fn);
  return ranks_.size() == 1 ? is_done : agree_on_success(ranks_.savers(), is_done);
}

bool Saver::write(const Save& save, const WriteFile& write_file) {
  const auto begun = Clock::now();
  const std::string failure =
      fmt::format("the checkpoint of step {} could not be written", save.step);
  const bool is_main = ranks_.rank() == 0, alone = ranks_.size() == 1;
  Json state = save.state;  // a slot's may be of ranks that are gone
  state.set("generation", Json(hooks_.generation));
  const auto stage = [&](const std::function<void()>& fn) {
    return together(failure, save.step, fn);
  };
  bool written = alone || stage([&] {
                   if (is_main) prepare_checkpoint(save.folder);
                 });
  written = written && stage([&] {
              if (hooks_.check) hooks_.check();
              record_.sync();
              write_checkpoint(save.folder, write_file, state, side_files_, ranks_.rank(),
                               ranks_.size(), hooks_.check);
            });
  written = written && (alone || stage([&] {
                          if (!is_main) return;
                          if (hooks_.check) hooks_.check();
                          commit_checkpoint(save.folder, ranks_.size(), hooks_.check);
                        }));
  if (!written) {
    if (is_main) discard(save.folder);  // no rank writes any more
    return false;
  }
  const double write_s = seconds_since(begun);
  record_.try_event("checkpoint",
                    {{"step", Json(save.step)},
                     {"path", Json(save.folder.string())},
                     {"rank_bytes", Json(rank_file_.bytes())},
                     {"write_s", Json(write_s)},
                     {"blocked_s", Json(save.has_snapshot ? blocked_so_far() : write_s)}});
  return true;
}

// Where another process has taken the run over, the folder may be that one's.
void Saver::discard(const std::filesystem::path& folder) {
  try {
    if (hooks_.check) hooks_.check();
  } catch (const Error&) {
    return;
  }
  discard_checkpoint(folder);
}

Json Saver::to_json(const TrainState& state) const {
  Json s;
  s.set("step", Json(state.step));
  s.set("updates", Json(state.updates));
  s.set("epoch", Json(state.position.epoch));
  s.set("position", Json(state.position.position));
  s.set("part", Json(state.position.part));  // pack: rows already used of those that begin there
  s.set("data_files", Json(state.position.files));
  s.set("eval_split", Json(state.position.splits_by_row ? "by_row" : "exact"));
  s.set("seed", Json(file_.config().seed));
  s.set("rng", Json());  // null: all draws are functions of seed and position
  state.scaling.save(&s);
  put_best(state.best, state.best_loss, state.evals_without_progress, &s);
  s.set("optimizer", Json(file_.config().train.optimizer.name));
  s.set("exact", exact_to_json(ranks_.layout()));
  s.set("numerics", numerics_);
  s.set("weft", Json(kWeftVersion));
  s.set("run", Json(file_.resolved()));
  return s;
}

void Saver::put_best(const std::optional<double>& value, const std::optional<double>& loss,
                     int64_t evals_without_progress, Json* state) const {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  state->set(best_key(), number(value));
  if (file_.config().checkpoint.best != "eval_loss") state->set(kLossOfBest, number(loss));
  state->set("evals_without_progress", Json(evals_without_progress));
}

bool Saver::guarded(const std::string& what, int64_t step, const std::function<void()>& fn) {
  std::string reason;
  try {
    fn();
    return true;
  } catch (const BugError&) {
    throw;
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception& e) {  // including std::filesystem errors and bad_alloc
    reason = e.what();
  }
  log_error("{}: {}", what, reason);
  record_.try_event("error", {{"step", Json(step)}, {"message", Json(reason)}});
  return false;
}

}  // namespace weft
