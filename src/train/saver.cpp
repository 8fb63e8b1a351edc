// train/saver.cpp: the contents of a checkpoint's state.json, and how write failures are handled.
#include "train/saver.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "comm/comm.h"
#include "train/eval_pass.h"
#include "train/host_slices.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

// The constants that the bits depend on; null: not exact mode.
Json exact_to_json(const Layout& layout) {
  if (!layout.is_exact) return Json();
  Json exact;
  exact.set("exact_tp", Json(layout.exact_tp));
  exact.set("exact_dp", Json(layout.exact_dp));
  exact.set("exact_rows", Json(layout.exact_rows));
  return exact;
}

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

bool Saver::save_step(const TrainState& state) {
  if (!write(checkpoint_path(dir_, state.step), state)) return false;
  const ScopedNoDeadline no_deadline(ranks_.world());  // there may be many files to delete
  bool pruned = true;
  if (ranks_.rank() == 0) {
    pruned = guarded("older checkpoints could not be removed", state.step,
                     [&] { prune_checkpoints(dir_, file_.config().checkpoint.keep, state.step); });
  }
  agree_on_success(ranks_,
                   pruned);  // the others wait here, without a deadline, not in the next step
  return true;
}

void Saver::keep_best(const std::optional<double>& value, TrainState* state) {
  if (!value) return;
  if (state->best && !is_better(file_.config().checkpoint.best, *value, *state->best)) {
    ++state->evals_without_progress;
    return;
  }
  const std::optional<double> before = std::exchange(state->best, value);
  const int64_t without = std::exchange(state->evals_without_progress, 0);
  if (write(dir_ / "checkpoints" / "best", *state)) return;
  state->best = before;
  state->evals_without_progress = without;
}

bool Saver::write(const std::filesystem::path& folder, const TrainState& state) {
  const std::string failure =
      fmt::format("the checkpoint of step {} could not be written", state.step);
  const bool is_main = ranks_.rank() == 0, alone = ranks_.size() == 1;
  const ScopedNoDeadline no_deadline(ranks_.world());  // a rank's disk may be slow
  // Every stage is done by all ranks or abandoned by all: nobody waits for a failed one.
  const auto together = [&](const std::function<void()>& fn) {
    return agree_on_success(ranks_, guarded(failure, state.step, fn));
  };
  bool written = alone || together([&] {
                   if (is_main) prepare_checkpoint(folder);
                 });
  written =
      written && together([&] {
        record_.sync();
        const HostSlices held(engine_.weights().checkpoint_slices(), engine_.executor().device());
        write_checkpoint(folder, held.slices(), to_json(state), side_files_, ranks_.rank(),
                         ranks_.size());
      });
  written = written && (alone || together([&] {
                          if (is_main) commit_checkpoint(folder, ranks_.size());
                        }));
  if (written)
    record_.try_event("checkpoint", {{"step", Json(state.step)}, {"path", Json(folder.string())}});
  return written;
}

Json Saver::to_json(const TrainState& state) const {
  Json s;
  s.set("step", Json(state.step));
  s.set("updates", Json(state.updates));
  s.set("epoch", Json(state.position.epoch));
  s.set("position", Json(state.position.position));
  s.set("part", Json(state.position.part));  // pack: rows already used of those that begin there
  s.set("data_files", Json(state.position.files));
  s.set("seed", Json(file_.config().seed));
  s.set("rng", Json());  // null: all draws are functions of seed and position
  state.scaling.save(&s);
  s.set("best_" + file_.config().checkpoint.best, state.best ? Json(*state.best) : Json());
  s.set("evals_without_progress", Json(state.evals_without_progress));
  s.set("optimizer", Json(file_.config().train.optimizer.name));
  s.set("exact", exact_to_json(ranks_.layout()));
  s.set("numerics", numerics_);
  s.set("weft", Json(kWeftVersion));
  s.set("run", Json(file_.resolved()));
  return s;
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
