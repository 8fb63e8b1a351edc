// train/choose_start.cpp: sound checkpoints, finished runs, and runs that had checkpoints.
#include "train/choose_start.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/indented_lines.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/export.h"
#include "train/finished_run.h"
#include "train/run_history.h"
#include "train/stored_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> reasons_of(const std::vector<DamagedFolder>& folders) {
  std::vector<std::string> reasons;
  for (const DamagedFolder& folder : folders) reasons.push_back(folder.reason);
  return reasons;
}

// The checkpoint's own record of its keys. It is checked even where run.yaml exists: that may be
// the user's own file, and edited.
void compare_recorded(const fs::path& checkpoint, const Json& state, const RunStart& start,
                      StartQuestion* question) {
  const Json* run = state.find("run");
  if (!run || !run->is_string()) return;
  const std::string what = "the keys recorded in " + checkpoint.string();
  RunChanges changes =
      compare_runs(run->as_string(), question->file.resolved(), what.c_str(), question->converts);
  if (!changes.refused.empty()) {
    throw UserError(
        fmt::format("{} was trained with other keys:{}", checkpoint.string(),
                    indented_lines(changes.refused)),
        fmt::format("set them as they were; or train its weights in a new run: weft export {} DIR, "
                    "then --set model.path=DIR --set model.init=pretrained{}{}",
                    checkpoint.string(), convert_hint(changes), fixed_keys_hint()));
  }
  if (question->has_stored && !start.is_of_other_run) return;
  if (!start.is_of_other_run && is_run_dir(start.dir)) {
    log_warning("{} is missing or truncated: keys were compared with those recorded in {}",
                (start.dir / "run.yaml").string(), checkpoint.string());
  }
  question->changes = std::move(changes);
}

// Completed steps cannot be undone by a smaller number.
void check_end(const TrainConfig& train, const fs::path& checkpoint, const Json& state,
               const RunChanges& changes) {
  const int64_t step = state.at("step").as_int(), epoch = state.at("epoch").as_int();
  if (train.steps && *train.steps < step) {
    throw UserError(fmt::format("train.steps is {}, but the run is at step {} ({})", *train.steps,
                                step, checkpoint.string()),
                    fmt::format("train.steps={} ends it there, a larger value continues; to go "
                                "back, name a checkpoint of step {} or earlier with --resume PATH",
                                step, *train.steps));
  }
  const bool has_begun = state.at("position").as_int() > 0;
  if (train.steps || changes.future.empty() || epoch <= train.epochs) return;
  if (epoch == train.epochs + 1 && !has_begun) return;
  throw UserError(fmt::format("train.epochs is {}, but the run is in epoch {} ({})", train.epochs,
                              epoch, checkpoint.string()),
                  "raise train.epochs; to go back, name an earlier checkpoint with --resume PATH");
}

// The start of a hint, where best/ is sound.
std::string best_hint(const std::optional<SoundBest>& best) {
  if (!best) return "";
  return fmt::format("resume from its best, of step {}, with --resume {}; or ", best->step,
                     best->path.string());
}

[[noreturn]] void refuse_to_begin_again(const fs::path& dir, const CheckpointSearch& found,
                                        const std::vector<std::string>& set_aside) {
  std::vector<std::string> there;
  const auto best = find_sound_best(dir);
  if (best) there.push_back(fmt::format("sound: checkpoints/best, of step {}", best->step));
  for (const DamagedFolder& d : found.damaged) there.push_back("damaged: " + d.reason);
  for (const std::string& name : set_aside) there.push_back("set aside: checkpoints/" + name);
  if (has_final(dir)) there.push_back("final/, the model of an earlier end");
  if (there.empty()) there.push_back("nothing: its checkpoints were removed");
  throw UserError(
      fmt::format("{} had checkpoints, but no sound one is left to resume from; found:{}",
                  dir.string(), indented_lines(there)),
      best_hint(best) +
          "restore a checkpoint, name one with --resume PATH, or start over at step 0 with "
          "--overwrite, which discards what is there");
}

// The end of a finished run is the one that it reached. run.yaml may have another: a start with a
// raised end may have stored it and failed before its first event.
void compare_end(const RunHistory& history, StartQuestion* question) {
  const TrainConfig& train = question->file.config().train;
  const bool is_early = history.stalled_evals.has_value();
  const char* key = is_early ? "train.early_stop" : train.steps ? "train.steps" : "train.epochs";
  const auto reached = is_early      ? history.stalled_evals
                       : train.steps ? history.finished_step
                                     : history.finished_epochs;
  const int64_t wanted = is_early ? train.early_stop : train.steps.value_or(train.epochs);
  if (!reached) return;
  std::vector<std::string>& future = question->changes.future;
  // One that was stopped early does not continue with more steps.
  std::erase_if(future, [&](const std::string& change) {
    const std::string_view changed = std::string_view(change).substr(0, change.find(':'));
    return changed == key || changed == "train.early_stop" ||
           (is_early && (changed == "train.steps" || changed == "train.epochs"));
  });
  const bool is_reached = is_early ? is_stalled(train, *reached) : wanted == *reached;
  if (!is_reached) future.push_back(fmt::format("{}: {} -> {}", key, *reached, wanted));
}

// A finished run whose checkpoints were removed to save space, or are damaged.
void check_still_finished(const StartQuestion& question, const fs::path& dir, int64_t step,
                          const CheckpointSearch& found) {
  if (!question.has_stored) {
    throw UserError(
        fmt::format("{} is finished at step {}, but its run.yaml is missing or truncated, and no "
                    "sound checkpoint records its keys: it cannot be compared with this run",
                    dir.string(), step),
        "restore run.yaml, or " + new_run_hint(dir));
  }
  if (question.changes.future.empty()) return warn_of_damaged(found);
  const std::string state = found.damaged.empty()
                                ? "its checkpoints are gone"
                                : fmt::format("none of its checkpoints is sound:{}\n ",
                                              indented_lines(reasons_of(found.damaged)));
  throw UserError(fmt::format("{} is finished at step {} and {}: it cannot continue with{}",
                              dir.string(), step, state, indented_lines(question.changes.future)),
                  best_hint(find_sound_best(dir)) + new_run_hint(dir));
}

// Finished, with a checkpoint that is older than its end: retraining the steps after it would
// replace final/.
void check_finished_later(const StartQuestion& question, const fs::path& dir, int64_t step,
                          const CheckpointSearch& found) {
  if (question.changes.future.empty()) return warn_of_damaged(found);
  const int64_t from = found.state.at("step").as_int();
  const std::string lost =
      found.damaged.empty()
          ? fmt::format("the checkpoint of step {} is gone", step)
          : fmt::format("damaged:{}\n ", indented_lines(reasons_of(found.damaged)));
  throw UserError(
      fmt::format("{} is finished at step {}, but its newest sound checkpoint is of step {}: {}; "
                  "resuming from there would retrain the steps after {} and replace final/, with{}",
                  dir.string(), step, from, lost, from, indented_lines(question.changes.future)),
      fmt::format("do that with --resume {}; or restore the checkpoint of step {}; or {}",
                  found.sound->string(), step, new_run_hint(dir)));
}

// The run started from another run's checkpoint and saved none of its own: step 0 is not its start.
[[noreturn]] void refuse_step_zero(const fs::path& dir, const std::string& from) {
  throw UserError(
      fmt::format("the last start of {} resumed from {} and has saved no checkpoint since",
                  dir.string(), from),
      fmt::format("--resume {} starts there again, --resume never at step 0", from));
}

// final/ holds a trained model. A start that ended at step 0 wrote its initial weights there, which
// can be recreated.
bool has_trained_model(const fs::path& dir, const RunHistory& history) {
  return !(history.finished_step && *history.finished_step == 0) && is_export(dir / "final");
}

// The events are lost, or the last step could not be saved: nothing else records that model.
[[noreturn]] void refuse_to_replace_model(const fs::path& dir) {
  throw UserError(
      fmt::format("{} holds a model, but there is no checkpoint to resume from, and no event "
                  "records that the run is finished: training from step 0 would replace that model",
                  (dir / "final").string()),
      best_hint(find_sound_best(dir)) + new_run_hint(dir));
}

// No sound checkpoint of a step: finished, rejected, only best/ was saved so far, or never started.
void start_without_checkpoint(StartQuestion* question, const CheckpointSearch& found,
                              RunStart* start) {
  const RunHistory history = read_history(start->dir);
  if (history.finished_step.value_or(0) > 0 && has_final(start->dir)) {
    compare_end(history, question);
    check_still_finished(*question, start->dir, *history.finished_step, found);
    start->finished_step = history.finished_step;
    return;
  }
  const std::vector<std::string> set_aside = list_set_aside(start->dir);
  // A best that was moved there does not show that a step was saved.
  const bool has_steps =
      std::any_of(set_aside.begin(), set_aside.end(),
                  [](const std::string& name) { return !name.starts_with("abandoned/best"); });
  if (history.has_committed || !found.damaged.empty() || has_steps)
    refuse_to_begin_again(start->dir, found, set_aside);
  if (has_trained_model(start->dir, history)) refuse_to_replace_model(start->dir);
  if (const auto best = find_sound_best(start->dir)) {
    log_info("{} has no checkpoint but its best: the run resumes from that, of step {}",
             start->dir.string(), best->step);
    return choose_named(find_named_start(best->path.string(), *start), question, start);
  }
  if (const auto damage = find_damaged_best(start->dir)) {
    CheckpointSearch only_best;
    only_best.damaged = {*damage};
    refuse_to_begin_again(start->dir, only_best, set_aside);
  }
  if (!history.started_from.empty()) refuse_step_zero(start->dir, history.started_from);
  if (is_run_dir(start->dir))
    log_info("{} has no checkpoint: the run starts at step 0", start->dir.string());
}

}  // namespace

void choose_newest(StartQuestion* question, RunStart* start) {
  CheckpointSearch found = find_sound_checkpoint(start->dir, start->found_damaged);
  if (!found.sound) return start_without_checkpoint(question, found, start);
  compare_recorded(*found.sound, found.state, *start, question);
  const RunHistory history = read_history(start->dir);
  const int64_t finished = history.finished_step.value_or(0);
  if (finished > found.state.at("step").as_int() && has_final(start->dir)) {
    found = find_sound_checkpoint(start->dir, start->found_damaged, CheckDepth::kEveryByte);
    if (!found.sound) return start_without_checkpoint(question, found, start);
    compare_end(history, question);
    check_finished_later(*question, start->dir, finished, found);
    start->finished_step = finished;
    return;
  }
  check_end(question->file.config().train, *found.sound, found.state, question->changes);
  start->checkpoint = std::move(found.sound);
  start->damaged = std::move(found.damaged);
}

void choose_named(NamedStart named, StartQuestion* question, RunStart* start) {
  start->is_of_other_run = !named.is_own;
  compare_recorded(named.checkpoint, named.state, *start, question);
  check_end(question->file.config().train, named.checkpoint, named.state, question->changes);
  start->checkpoint = std::move(named.checkpoint);
  start->damaged = std::move(named.damaged);
}

void check_nothing_buried(const fs::path& dir) {
  const RunHistory history = read_history(dir);
  const bool has_checkpoints = !list_checkpoints(dir).empty() || !list_uncommitted(dir).empty() ||
                               !list_set_aside(dir).empty();
  const bool has_model = has_trained_model(dir, history);
  if (!has_checkpoints && !history.has_committed && !has_model) return;
  throw UserError(fmt::format("{} {}, and --resume never would discard {}", dir.string(),
                              has_checkpoints ? "has checkpoints"
                              : has_model     ? "has a model in final/"
                                              : "had checkpoints",
                              has_checkpoints ? "them"
                              : has_model     ? "it"
                                              : "what is there"),
                  has_model
                      ? new_run_hint(dir)
                      : "add --overwrite to discard what is there, or give the run another name");
}

}  // namespace weft
