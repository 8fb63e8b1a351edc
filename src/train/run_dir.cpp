// train/run_dir.cpp: a second start of the same run goes on; another run is refused.
#include "train/run_dir.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "checkpoint/replace_folder.h"
#include "track/run_files.h"
#include "train/finished_run.h"
#include "train/old_run.h"
#include "train/run_history.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

std::string join(const std::vector<std::string>& lines) {
  std::string list;
  for (const std::string& line : lines) list += "\n    " + line;
  return list;
}

// What changed since the last start and may change.
std::vector<std::string> check_same_run(const RunFile& file, const fs::path& dir) {
  const fs::path stored = dir / "run.yaml";
  if (path_kind(stored) == PathKind::kNothing) return {};
  RunChanges changes = compare_runs(read_file(stored, 1 << 20), file.resolved());
  if (changes.refused.empty()) return std::move(changes.allowed);
  throw UserError(fmt::format("{} holds another run:{}", dir.string(), join(changes.refused)),
                  "give the run another name, undo the change, or start anew with --overwrite");
}

// The end of the run will replace final/: only what a run of this directory wrote may go.
void check_final(const fs::path& dir, bool overwrite) {
  const fs::path place = dir / "final";
  const PathKind kind = path_kind(place);
  if (kind == PathKind::kNothing) return;
  const bool is_folder = kind == PathKind::kFolder;
  if (is_folder && folder_names(place).empty()) return;
  const char* away = "move it away, or give the run another name or --run-dir";
  if (!is_folder || !is_export(place)) {
    throw UserError(fmt::format("{} is no model that a run wrote, and this run would replace it",
                                place.string()),
                    away);
  }
  if (overwrite || path_kind(dir / "run.yaml") != PathKind::kNothing) return;
  throw UserError(fmt::format("{} holds a model, but no run is in {}: this run would replace it",
                              place.string(), dir.string()),
                  away);
}

[[noreturn]] void refuse_to_begin_again(const fs::path& dir, const CheckpointSearch& found,
                                        const std::vector<std::string>& set_aside) {
  std::vector<std::string> there;
  for (const DamagedFolder& d : found.damaged) there.push_back("damaged: " + d.reason);
  for (const std::string& name : set_aside) there.push_back("set aside: checkpoints/" + name);
  if (has_final(dir)) there.push_back("final/, the model of an earlier end");
  if (there.empty()) there.push_back("nothing: its checkpoints were removed");
  throw UserError(
      fmt::format("{} had checkpoints, and no sound one is left to go on from; there is:{}",
                  dir.string(), join(there)),
      "bring a checkpoint back, name one with --resume PATH, or begin again at step 0 with "
      "--overwrite, which gives up what is there");
}

// A run that came to its end and whose checkpoints were removed to save space, or are damaged.
void check_still_finished(const fs::path& dir, int64_t step, const CheckpointSearch& found,
                          const std::vector<std::string>& changes) {
  if (changes.empty()) return warn_of_damaged(found);
  std::vector<std::string> damaged;
  for (const DamagedFolder& d : found.damaged) damaged.push_back(d.reason);
  const std::string state =
      damaged.empty() ? "its checkpoints are gone"
                      : fmt::format("none of its checkpoints is sound:{}\n ", join(damaged));
  throw UserError(
      fmt::format("{} is finished at step {} and {}: it cannot go on with{}", dir.string(), step,
                  state, join(changes)),
      fmt::format(
          "train further from its model under another name (--set name=NEW --set "
          "model.path={} --set model.init=pretrained), or begin again with --overwrite, which "
          "gives up final/",
          (dir / "final").string()));
}

// No sound checkpoint: finished, never begun, or refused.
void start_without_checkpoint(const CheckpointSearch& found,
                              const std::vector<std::string>& changes, RunStart* start) {
  const RunHistory history = read_history(start->dir);
  if (history.finished_step.value_or(0) > 0 && has_final(start->dir)) {
    check_still_finished(start->dir, *history.finished_step, found, changes);
    start->finished_step = history.finished_step;
    return;
  }
  const std::vector<std::string> set_aside = list_set_aside(start->dir);
  if (history.has_committed || !found.damaged.empty() || !set_aside.empty())
    refuse_to_begin_again(start->dir, found, set_aside);
  if (path_kind(start->dir / "run.yaml") != PathKind::kNothing)
    log_info("{} has no checkpoint: the run starts at step 0", start->dir.string());
}

void choose_newest(const std::vector<std::string>& changes, RunStart* start) {
  CheckpointSearch found = find_sound_checkpoint(start->dir);
  if (!found.sound) return start_without_checkpoint(found, changes, start);
  start->checkpoint = std::move(found.sound);
  start->damaged = std::move(found.damaged);
}

// --resume never: nothing that training has made may be buried.
void check_nothing_buried(const fs::path& dir) {
  const RunHistory history = read_history(dir);
  const bool has_checkpoints = !list_checkpoints(dir).empty() || !list_uncommitted(dir).empty() ||
                               !list_set_aside(dir).empty();
  const bool has_model = history.finished_step.value_or(0) > 0 && has_final(dir);
  if (!has_checkpoints && !history.has_committed && !has_model) return;
  throw UserError(fmt::format("{} {}, and --resume never would bury {}", dir.string(),
                              has_checkpoints ? "has checkpoints"
                              : has_model     ? "is finished"
                                              : "had checkpoints",
                              has_checkpoints ? "them" : "what is there"),
                  "add --overwrite to give up what is there, or give the run another name");
}

// Said also where --quiet is set: a person must know.
void rename_damaged(const std::vector<DamagedFolder>& folders, EventWriter* events) {
  for (const DamagedFolder& damaged : folders) {
    const fs::path aside = set_aside_damaged(damaged.path);
    log_error("{}: passed over, and kept as {}", damaged.reason, aside.string());
    events->write("damaged", {{"path", Json(damaged.path.string())},
                              {"renamed", Json(aside.string())},
                              {"message", Json(damaged.reason)}});
  }
}

// Left where they are, they would pass for newer than what this run saves; and a best/ that the
// starting state does not know of would be replaced by a model that is worse.
void abandon_later(const RunStart& start, int64_t step, EventWriter* events) {
  if (!start.checkpoint) return;
  std::vector<fs::path> moved = abandon_checkpoints_after(start.dir, step, *start.checkpoint);
  if (start.is_other_training) {
    if (const auto best = abandon_best(start.dir, *start.checkpoint)) moved.push_back(*best);
  }
  for (const fs::path& path : moved) {
    log_warning("the run starts at step {}: what was trained later or otherwise was moved to {}",
                step, path.string());
    events->write("abandoned", {{"path", Json(path.string())}, {"step", Json(step)}});
  }
}

// There was no directory to lock when the start was decided on: whoever has made it since is gone,
// but may have trained.
void lock_new(RunStart* start) {
  start->lock = std::make_shared<RunLock>(start->dir);
  for (const char* name : {"run.yaml", "events.jsonl", "checkpoints", "final"}) {
    if (path_kind(start->dir / name) == PathKind::kNothing) continue;
    throw UserError(fmt::format("another process has trained in {} meanwhile", start->dir.string()),
                    "run the same command again: it goes on from what is there now");
  }
}

}  // namespace

fs::path run_dir_of(const RunConfig& c, const TrainOptions& options) {
  return options.run_dir.empty() ? fs::path(c.storage) / c.name : options.run_dir;
}

RunStart open_run_dir(const RunFile& file, const TrainOptions& options) {
  RunStart start;
  start.dir = run_dir_of(file.config(), options);
  check_length(start.dir);
  const PathKind kind = path_kind(start.dir);
  require(kind == PathKind::kNothing || kind == PathKind::kFolder, "{} is not a folder",
          start.dir.string());
  const bool has_path = options.resume != "auto" && options.resume != "never";
  require(!has_path || is_checkpoint(options.resume), "--resume {}: no whole checkpoint is there",
          options.resume);
  require(
      !has_path || !options.overwrite,
      "--overwrite gives up every checkpoint, and --resume {} asks for one: give one of the two",
      options.resume);
  if (kind == PathKind::kNothing) check_can_write(start.dir);
  check_final(start.dir, options.overwrite);
  if (options.overwrite) check_old_run(start.dir);
  std::vector<std::string> changes;
  if (!options.overwrite) changes = check_same_run(file, start.dir);
  if (kind == PathKind::kFolder) start.lock = RunLock::try_on(start.dir);
  if (kind == PathKind::kFolder && !start.lock && !has_final(start.dir)) RunLock lock(start.dir);
  if (options.overwrite) return start;
  if (has_path) start.checkpoint = options.resume;
  if (options.resume == "auto") choose_newest(changes, &start);
  if (options.resume == "never") check_nothing_buried(start.dir);
  start.is_other_training = has_path || !changes.empty();
  for (const std::string& change : changes) log_info("changed since the last start: {}", change);
  return start;
}

void prepare_run_dir(const RunFile& file, RunStart* start, int64_t step, bool overwrite) {
  const fs::path& dir = start->dir;
  if (!start->lock) lock_new(start);
  recover_replaced(dir / "checkpoints" / "best");
  recover_replaced(dir / "final");
  remove_renamed(dir);
  if (overwrite) remove_old_run(dir);
  make_folder(dir / "log");
  make_folder(dir / "checkpoints");
  remove_unfinished(dir);
  cut_torn_line(dir / "events.jsonl");
  EventWriter events(dir / "events.jsonl", 0);
  rename_damaged(start->damaged, &events);
  rename_damaged(list_uncommitted(dir), &events);  // --resume PATH has not looked for them
  abandon_later(*start, step, &events);
  write_file_atomic(dir / "run.yaml", file.resolved());
}

}  // namespace weft
