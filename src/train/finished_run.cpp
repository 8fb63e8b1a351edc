// train/finished_run.cpp: decides from run.yaml, events.jsonl, final/ and the checkpoints alone.
#include "train/finished_run.h"

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "config/run_changes.h"
#include "io/hf_folder.h"
#include "train/run_history.h"
#include "train/stored_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

bool is_unchanged(const RunFile& file, const fs::path& dir) {
  if (find_stored_run(dir) != StoredRun::kWhole) return false;
  const RunChanges changes = compare_runs(read_stored_run(dir), file.resolved());
  return changes.refused.empty() && changes.allowed.empty();
}

// 0 where no checkpoint is sound.
int64_t step_of(const CheckpointSearch& found) {
  return found.sound ? found.state.at("step").as_int() : 0;
}

// A start with a raised end may have stored its run.yaml and failed before its first event.
bool is_past_end(const TrainConfig& train, const RunHistory& history,
                 const CheckpointSearch& found) {
  const int64_t step = *history.finished_step;
  if (history.stalled_evals) return is_stalled(train, *history.stalled_evals);
  if (train.steps) return step >= *train.steps;
  if (history.finished_epochs) return *history.finished_epochs >= train.epochs;
  // An earlier weft recorded no epochs: without the last checkpoint its run.yaml is believed.
  return step_of(found) < step || found.state.at("epoch").as_int() > train.epochs;
}

}  // namespace

bool has_final(const fs::path& dir) {
  if (path_kind(dir / "final" / "config.json") != PathKind::kFile) return false;
  try {
    HfFolder(dir / "final").open_weights();
    return true;
  } catch (const UserError&) {  // a file is missing, truncated or not JSON
    return false;
  }
}

const char* way_to_continue(bool is_early) {
  return is_early ? ", where train.early_stop ended it: raise that, or set it to 0, to continue"
                  : ": raise train.steps or train.epochs to continue";
}

std::string new_run_hint(const fs::path& dir) {
  return fmt::format(
      "train further from its model under another name (--set name=NEW --set model.path={} --set "
      "model.init=pretrained), or start over with --overwrite, which discards final/",
      (dir / "final").string());
}

RunError unsaved_end(const fs::path& dir, int64_t step, bool has_model) {
  const std::vector<fs::path> saved = list_checkpoints(dir);
  std::string next = has_model ? "there is no checkpoint to resume from: " + new_run_hint(dir)
                               : "the same command starts again where this one did";
  if (!saved.empty()) next = "the same command resumes from " + saved.back().string();
  return RunError(fmt::format("the last step, {}, could not be saved: {}", step,
                              has_model ? "final/ holds its model" : "no final/ is written"),
                  "free space on the disk; " + next);
}

void warn_of_damaged(const CheckpointSearch& found) {
  for (const DamagedFolder& damaged : found.damaged) log_warning("{}", damaged.reason);
}

bool report_if_finished(const RunFile& file, const TrainOptions& options) {
  if (options.overwrite || options.resume != "auto") return false;
  if (!run_address_of(file.config(), options).empty()) return false;  // the mirror may be old
  const fs::path dir = run_dir_of(file.config(), options);
  check_length(dir);
  if (!has_final(dir) || !is_unchanged(file, dir)) return false;
  const RunHistory history = read_history(dir);
  if (!history.finished_step) return false;
  const int64_t step = *history.finished_step;
  if (step_of(find_sound_checkpoint(dir)) > step) return false;
  // The message below suggests resuming from this checkpoint, so every byte is verified first.
  const CheckpointSearch found = find_sound_checkpoint(dir, {}, CheckDepth::kEveryByte);
  if (step == 0 && !found.sound) return false;  // only initial weights: the run starts again
  if (!is_past_end(file.config().train, history, found)) return false;
  warn_of_damaged(found);
  if (found.sound && step_of(found) < step)
    log_warning("the checkpoint of step {} is gone or damaged; the newest sound one is {}", step,
                found.sound->string());
  log_info("{} is finished at step {}{}", dir.string(), step,
           found.sound && step_of(found) == step
               ? way_to_continue(history.stalled_evals.has_value())
               : "");
  return true;
}

}  // namespace weft
