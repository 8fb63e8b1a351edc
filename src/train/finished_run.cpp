// train/finished_run.cpp: run.yaml, events.jsonl, final/ and the checkpoints, looked at alone.
#include "train/finished_run.h"

#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "train/run_history.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

bool is_unchanged(const RunFile& file, const fs::path& dir) {
  const fs::path stored = dir / "run.yaml";
  if (path_kind(stored) != PathKind::kFile) return false;
  const RunChanges changes = compare_runs(read_file(stored, 1 << 20), file.resolved());
  return changes.refused.empty() && changes.allowed.empty();
}

// A start with a raised end may have stored its run.yaml and failed before its first event.
bool is_past_end(const TrainConfig& train, int64_t step, const CheckpointSearch& found) {
  if (train.steps) return step >= *train.steps;
  if (!found.sound) return true;  // without a checkpoint no such start gets as far
  return CheckpointReader(*found.sound).state().at("epoch").as_int() > train.epochs;
}

}  // namespace

bool has_final(const fs::path& dir) {
  return path_kind(dir / "final" / "config.json") == PathKind::kFile;
}

void warn_of_damaged(const CheckpointSearch& found) {
  for (const DamagedFolder& damaged : found.damaged) log_warning("{}", damaged.reason);
}

bool report_if_finished(const RunFile& file, const TrainOptions& options) {
  if (options.overwrite || options.resume != "auto") return false;
  const fs::path dir = run_dir_of(file.config(), options);
  check_length(dir);
  if (!has_final(dir) || !is_unchanged(file, dir)) return false;
  const int64_t step = read_history(dir).finished_step.value_or(0);
  if (step == 0) return false;
  const CheckpointSearch found = find_sound_checkpoint(dir);
  if (found.sound && *found.sound != checkpoint_path(dir, step)) return false;
  if (!is_past_end(file.config().train, step, found)) return false;
  warn_of_damaged(found);
  log_info("{} is finished at step {}{}", dir.string(), step,
           found.sound ? ": raise train.steps or train.epochs to go on" : "");
  return true;
}

}  // namespace weft
