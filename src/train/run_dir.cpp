// train/run_dir.cpp: a second start of the same run resumes it; another run is rejected.
#include "train/run_dir.h"

#include "base/error.h"
#include "base/file.h"
#include "base/indented_lines.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/export.h"
#include "checkpoint/replace_folder.h"
#include "track/run_files.h"
#include "train/choose_start.h"
#include "train/finished_run.h"
#include "train/old_run.h"
#include "train/stored_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

// What changed since the last start; an incomplete run.yaml yields nothing.
RunChanges check_same_run(const RunFile& file, const fs::path& dir, bool has_stored,
                          bool converts) {
  if (!has_stored) return {};
  RunChanges changes =
      compare_runs(read_stored_run(dir), file.resolved(), "the stored run.yaml", converts);
  if (changes.refused.empty()) return changes;
  throw UserError(
      fmt::format("{} holds another run:{}", dir.string(), indented_lines(changes.refused)),
      "give the run another name, undo the change, or start over with --overwrite" +
          convert_hint(changes) + fixed_keys_hint());
}

// The end of the run will replace final/: only what a run in this directory wrote may be replaced.
void check_final(const fs::path& dir, bool overwrite) {
  const fs::path place = dir / "final";
  const PathKind kind = path_kind(place);
  if (kind == PathKind::kNothing) return;
  const bool is_folder = kind == PathKind::kFolder;
  if (is_folder && folder_names(place).empty()) return;
  const char* away = "move it away, or give the run another name or --run-dir";
  if (!is_folder || !is_export(place)) {
    throw UserError(
        fmt::format("{} was not written by a run, and this run would replace it", place.string()),
        away);
  }
  if (overwrite || is_run_dir(dir)) return;
  throw UserError(fmt::format("{} holds a model, but no run is in {}: this run would replace it",
                              place.string(), dir.string()),
                  away);
}

// Also with --quiet: a user must know.
void rename_damaged(const std::vector<DamagedFolder>& folders, EventWriter* events) {
  for (const DamagedFolder& damaged : folders) {
    const fs::path aside = set_aside_damaged(damaged.path);
    log_error("{}: skipped, and kept as {}", damaged.reason, aside.string());
    events->write("damaged", {{"path", Json(damaged.path.string())},
                              {"renamed", Json(aside.string())},
                              {"message", Json(damaged.reason)}});
  }
}

// Left in place, they would look newer than what this run saves; and a best/ that is unknown to the
// starting state would be replaced by a worse model.
void abandon_later(const RunStart& start, int64_t step, EventWriter* events) {
  std::vector<fs::path> moved;
  if (start.checkpoint) moved = abandon_checkpoints_after(start.dir, step, *start.checkpoint);
  if (start.is_other_training || !start.checkpoint) {
    const auto best = abandon_best(start.dir, start.checkpoint.value_or(fs::path()));
    if (best) moved.push_back(*best);
  }
  for (const fs::path& path : moved) {
    log_warning("the run starts at step {}: what was trained later or differently was moved to {}",
                step, path.string());
    events->write("abandoned", {{"path", Json(path.string())}, {"step", Json(step)}});
  }
}

// There was no directory to lock when the start was decided: a process that created it since then
// is gone, but may have trained.
void lock_new(RunStart* start) {
  start->lock = std::make_shared<RunLock>(start->dir);
  for (const char* name : {"run.yaml", "events.jsonl", "checkpoints", "final"}) {
    if (path_kind(start->dir / name) == PathKind::kNothing) continue;
    throw UserError(fmt::format("another process has trained in {} meanwhile", start->dir.string()),
                    "run the same command again: it resumes from what is there now");
  }
}

// The other run's directory is only read; ours must have nothing to lose, or be discarded.
void take_named(const TrainOptions& options, StartQuestion* question, RunStart* start) {
  NamedStart named = find_named_start(options.resume, *start);
  require(
      !options.overwrite || !named.is_own,
      "--overwrite discards every checkpoint, but --resume {} needs one: give only one of the two",
      options.resume);
  if (!options.overwrite && !named.is_own) check_nothing_replaced(start->dir, named.checkpoint);
  choose_named(std::move(named), question, start);
}

// Locks and fills the mirror. Returns what --resume means there.
std::string open_remote(const std::string& address, const TrainOptions& options, int64_t keep,
                        RunStart* start) {
  std::shared_ptr<ObjectStore> store = open_object_store(address);
  start->lock = std::make_shared<RunLock>(start->dir);
  start->remote = std::make_shared<RemoteRun>(std::move(store), start->dir, remote_times());
  log_info("{} has its mirror in {}", start->remote->address(), start->dir.string());
  start->remote->pull(!options.overwrite, keep);
  const std::string below = start->remote->address() + "/";
  const std::string named = without_query(options.resume);
  if (named + "/" == below) return start->dir.string();
  if (!named.starts_with(below)) return options.resume;
  const std::string name = named.substr(below.size());
  require(start->remote->pull_folder(name), "--resume {}: there is no complete checkpoint",
          options.resume);
  return (start->dir / name).string();
}

void report_changes(const RunChanges& changes, const RunStart& start) {
  const char* since = start.is_of_other_run ? "different from the checkpoint's run"
                                            : "changed since the last start";
  for (const std::string& change : changes.allowed) log_info("{}: {}", since, change);
}

RunChanges decide(const RunFile& file, const TrainOptions& options, RunStart* start) {
  const bool has_path = options.resume != "auto" && options.resume != "never";
  const bool has_stored = !options.overwrite && find_stored_run(start->dir) == StoredRun::kWhole;
  const bool converts = options.convert_states;
  StartQuestion question{file, has_stored, check_same_run(file, start->dir, has_stored, converts),
                         converts};
  if (has_path) take_named(options, &question, start);
  if (!options.overwrite) {
    if (options.resume == "auto") choose_newest(&question, start);
    if (options.resume == "never") check_nothing_buried(start->dir);
    start->is_other_training = has_path || !question.changes.allowed.empty();
  }
  return std::move(question.changes);
}

}  // namespace

std::string run_address_of(const RunConfig& c, const TrainOptions& options) {
  if (!options.run_dir.empty())
    return is_remote(options.run_dir.string()) ? options.run_dir.string() : "";
  return is_remote(c.storage) ? join_address(c.storage, c.name) : "";
}

fs::path run_dir_of(const RunConfig& c, const TrainOptions& options) {
  if (const std::string address = run_address_of(c, options); !address.empty())
    return mirror_of(address, c.checkpoint.fallback);
  return options.run_dir.empty() ? fs::path(c.storage) / c.name : options.run_dir;
}

RunStart open_run_dir(const RunFile& file, const TrainOptions& given) {
  RunStart start;
  start.dir = run_dir_of(file.config(), given);
  check_length(start.dir);
  TrainOptions options = given;
  const std::string address = run_address_of(file.config(), options);
  if (!address.empty())
    options.resume = open_remote(address, options, file.config().checkpoint.keep, &start);
  if (is_remote(options.resume)) {
    start.copy = std::make_shared<LocalCopy>(options.resume);
    options.resume = start.copy->path();
  }
  const PathKind kind = path_kind(start.dir);
  require(kind == PathKind::kNothing || kind == PathKind::kFolder, "{} is not a folder",
          start.dir.string());
  if (kind == PathKind::kNothing) check_can_write(start.dir);
  if (kind == PathKind::kFolder && !start.lock) start.lock = RunLock::try_on(start.dir);
  if (kind == PathKind::kFolder && !start.lock && !has_final(start.dir)) RunLock lock(start.dir);
  check_run_yaml(start.dir, options.run_file);
  check_final(start.dir, options.overwrite);
  if (options.overwrite) check_old_run(start.dir);
  start.resume = options.resume;
  report_changes(decide(file, options, &start), start);
  return start;
}

RunStart reopen_run_dir(const RunFile& file, const TrainOptions& options) {
  RunStart start;
  start.dir = run_dir_of(file.config(), options);
  start.lock = std::make_shared<RunLock>(start.dir);
  if (const std::string address = run_address_of(file.config(), options); !address.empty())
    start.remote = std::make_shared<RemoteRun>(RemoteRun::Reopen{}, open_object_store(address),
                                               start.dir, remote_times());
  return start;
}

void tidy_run_dir(const fs::path& dir) {
  recover_replaced(dir / "checkpoints" / "best");
  recover_replaced(dir / "final");
  remove_unfinished(dir);
  cut_torn_line(dir / "events.jsonl");
}

RunStart choose_again(const RunFile& file, const TrainOptions& given, RunStart before,
                      const std::string& damage) {
  TrainOptions options = given;
  options.resume = before.resume;
  RunStart start;
  start.dir = std::move(before.dir);
  start.lock = std::move(before.lock);
  start.remote = std::move(before.remote);
  start.copy = std::move(before.copy);
  start.resume = options.resume;
  start.found_damaged = std::move(before.found_damaged);
  start.found_damaged.push_back({*before.checkpoint, damage});
  static_cast<void>(decide(file, options, &start));
  // Only a best/ is offered again: it was read whole before.
  if (start.checkpoint == before.checkpoint) throw DamagedCheckpoint(damage);
  return start;
}

void prepare_run_dir(const RunFile& file, RunStart* start, int64_t step, bool overwrite) {
  const fs::path& dir = start->dir;
  if (!start->lock) lock_new(start);
  if (!overwrite) check_metrics(dir / "metrics.jsonl", start->is_of_other_run ? 0 : step);
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
  rename_damaged(list_uncommitted(dir), &events);  // --resume PATH has not checked for them
  abandon_later(*start, step, &events);
  write_file_atomic(dir / "run.yaml", file.resolved());
  if (start->remote) start->remote->begin(step, overwrite);
}

bool has_lost_run(const RunStart& start) {
  return (start.lock && start.lock->is_lost()) || (start.remote && start.remote->has_lost_lock());
}

void check_run_is_ours(const RunStart& start) {
  if (start.lock) start.lock->check();
  if (start.remote) start.remote->check_lock();
}

}  // namespace weft
