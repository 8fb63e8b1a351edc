// checkpoint/list.cpp: a run's folders by name and step; renamed before anything is deleted.
#include "checkpoint/list.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/index.h"
#include "checkpoint/replace_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRemovingSuffix = ".removing";

enum class State { kWhole, kUncommitted, kWriting, kRemoving, kDamaged };

struct Entry {
  int64_t step;
  fs::path path;
  State state;
};

// The step of step-00000100, and the rest of the name; -1 for any other name.
int64_t read_step(const std::string& name, std::string_view* rest) {
  if (!name.starts_with("step-")) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [at, fault] = std::from_chars(name.data() + 5, end, step);
  *rest = {at, static_cast<size_t>(end - at)};
  // As we write them: eight digits or more. step-20 is a user's copy.
  return fault == std::errc() && at - name.data() >= 13 ? step : -1;
}

std::optional<Entry> entry_of(const fs::path& folder, const std::string& name) {
  std::string_view rest;
  const int64_t step = read_step(name, &rest);
  if (step < 0) return std::nullopt;
  const fs::path path = folder / name;
  if (rest == ".writing") return Entry{step, path, State::kWriting};
  if (rest == kRemovingSuffix) return Entry{step, path, State::kRemoving};
  if (rest.starts_with(".damaged")) return Entry{step, path, State::kDamaged};
  if (!rest.empty() || path_kind(path) != PathKind::kFolder) return std::nullopt;
  return Entry{step, path, is_checkpoint(path) ? State::kWhole : State::kUncommitted};
}

// Every folder of a step, by step.
std::vector<Entry> scan(const fs::path& run_dir) {
  const fs::path folder = run_dir / "checkpoints";
  std::vector<Entry> entries;
  for (const std::string& name : folder_names(folder)) {
    if (auto entry = entry_of(folder, name)) entries.push_back(std::move(*entry));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

DamagedFolder uncommitted(const Entry& e) {
  return {e.path, fmt::format("{} has no COMMITTED", e.path.string())};
}

// Whether best/ belongs to the history that led to `start`.
bool is_best_of(const fs::path& best, const fs::path& start) {
  if (fs::equivalent(best, start)) return true;
  const auto value = [](const Json& state, const char* measure) {
    const Json* found = state.find(measure);
    return found ? *found : Json();
  };
  try {
    const CheckpointReader there(best), begun(start);
    const Json &a = there.state(), &b = begun.state();
    for (const char* key : {"best_eval_loss", "best_exact_match", "best_sql_match"}) {
      if (!(value(a, key) == value(b, key))) return false;
    }
    return a.at("step").as_int() <= b.at("step").as_int();
  } catch (const UserError&) {  // damaged, or in another format
    return false;
  }
}

bool has_sound_structure(const fs::path& folder) {
  try {
    CheckpointReader(folder).check_structure();
    return true;
  } catch (const UserError&) {  // damaged, or in another format
    return false;
  }
}

void remove_checkpoint(const fs::path& folder) {
  const fs::path removing = folder.string() + kRemovingSuffix;
  remove_folder(removing);
  move_folder(folder, removing);
  remove_folder(removing);
}

}  // namespace

int64_t step_of_name(const std::string& name) {
  std::string_view rest;
  const int64_t step = read_step(name, &rest);
  return rest.empty() ? step : -1;
}

fs::path checkpoint_path(const fs::path& run_dir, int64_t step) {
  return run_dir / "checkpoints" / fmt::format("step-{:08}", step);
}

bool is_checkpoint(const fs::path& folder) {
  return path_kind(folder / kCommittedFile) == PathKind::kFile;
}

std::vector<fs::path> list_checkpoints(const fs::path& run_dir) {
  std::vector<fs::path> whole;
  for (const Entry& e : scan(run_dir)) {
    if (e.state == State::kWhole) whole.push_back(e.path);
  }
  return whole;
}

CheckpointSearch find_sound_checkpoint(const fs::path& run_dir,
                                       const std::vector<DamagedFolder>& known, CheckDepth depth) {
  CheckpointSearch search;
  const std::vector<Entry> entries = scan(run_dir);
  for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
    if (e->state == State::kUncommitted) search.damaged.push_back(uncommitted(*e));
    if (e->state != State::kWhole || search.sound) continue;
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const DamagedFolder& d) { return d.path == e->path; });
    if (found != known.end()) {
      search.damaged.push_back(*found);
      continue;
    }
    try {
      const CheckpointReader reader(e->path);
      if (depth == CheckDepth::kEveryByte) {
        reader.verify();
      } else {
        reader.check_structure();
      }
      search.sound = e->path;
      search.state = reader.state();
    } catch (const DamagedCheckpoint& damage) {
      search.damaged.push_back({e->path, damage.what()});
    }
  }
  return search;
}

namespace {

// The reason is empty where it is sound.
struct CheckedBest {
  SoundBest best;
  std::string reason;
};

std::optional<CheckedBest> check_best(const fs::path& run_dir) {
  const fs::path best = run_dir / "checkpoints" / "best";
  if (!is_checkpoint(best)) return std::nullopt;
  try {
    const CheckpointReader reader(best);
    reader.verify();
    return CheckedBest{{best, reader.state().at("step").as_int()}, ""};
  } catch (const UserError& e) {  // damaged, or in another format
    return CheckedBest{{best, 0}, e.what()};
  }
}

}  // namespace

std::optional<SoundBest> find_sound_best(const fs::path& run_dir) {
  const auto found = check_best(run_dir);
  if (!found || !found->reason.empty()) return std::nullopt;
  return found->best;
}

std::optional<DamagedFolder> find_damaged_best(const fs::path& run_dir) {
  const auto found = check_best(run_dir);
  if (!found || found->reason.empty()) return std::nullopt;
  return DamagedFolder{found->best.path, found->reason};
}

std::vector<DamagedFolder> list_uncommitted(const fs::path& run_dir) {
  std::vector<DamagedFolder> folders;
  for (const Entry& e : scan(run_dir)) {
    if (e.state == State::kUncommitted) folders.push_back(uncommitted(e));
  }
  return folders;
}

std::vector<std::string> list_set_aside(const fs::path& run_dir) {
  std::vector<std::string> names;
  for (const Entry& e : scan(run_dir)) {
    if (e.state == State::kDamaged) names.push_back(e.path.filename().string());
  }
  for (const std::string& name : folder_names(run_dir / "checkpoints" / "abandoned"))
    names.push_back("abandoned/" + name);
  return names;
}

fs::path set_aside_damaged(const fs::path& folder) {
  const fs::path aside = unused_path(folder.string() + ".damaged");
  move_folder(folder, aside);
  sync_directory(folder.parent_path());
  return aside;
}

std::vector<fs::path> abandon_checkpoints_after(const fs::path& run_dir, int64_t step,
                                                const fs::path& start) {
  const fs::path folder = run_dir / "checkpoints" / "abandoned";
  const std::vector<Entry> entries = scan(run_dir);
  std::vector<fs::path> moved;
  for (auto e = entries.rbegin(); e != entries.rend() && e->step >= step; ++e) {
    if (e->state != State::kWhole) continue;
    if (e->step == step && fs::equivalent(e->path, start)) continue;
    make_folder(folder);
    moved.push_back(unused_path(folder / e->path.filename()));
    move_folder(e->path, moved.back());
  }
  if (moved.empty()) return moved;
  sync_directory(folder);
  sync_directory(folder.parent_path());
  return moved;
}

std::optional<fs::path> abandon_best(const fs::path& run_dir, const fs::path& start) {
  const fs::path best = run_dir / "checkpoints" / "best", folder = best.parent_path() / "abandoned";
  if (path_kind(best) == PathKind::kNothing) return std::nullopt;
  if (!start.empty() && is_best_of(best, start)) return std::nullopt;
  make_folder(folder);
  fs::path moved = unused_path(folder / "best");
  move_folder(best, moved);
  sync_directory(folder);
  sync_directory(folder.parent_path());
  return moved;
}

void remove_unfinished(const fs::path& run_dir) {
  for (const Entry& e : scan(run_dir)) {
    if (e.state == State::kWriting || e.state == State::kRemoving) remove_folder(e.path);
  }
}

void prune_checkpoints(const fs::path& run_dir, int64_t keep, int64_t newest) {
  const std::vector<Entry> entries = scan(run_dir);
  int64_t oldest = -1, last = -1;  // last: no process writes an older step now
  int64_t num_kept = 0;
  for (auto e = entries.rbegin(); e != entries.rend() && num_kept < std::max<int64_t>(keep, 1);
       ++e) {
    if (e->state != State::kWhole || e->step > newest) continue;
    last = std::max(last, e->step);
    if (!has_sound_structure(e->path)) continue;
    oldest = e->step;
    ++num_kept;
  }
  if (num_kept < std::max<int64_t>(keep, 1)) oldest = -1;  // keeps all sound checkpoints
  for (const Entry& e : entries) {
    if (e.state == State::kWhole && e.step < oldest) remove_checkpoint(e.path);
    if (e.state == State::kRemoving) remove_folder(e.path);
    if (e.state == State::kWriting && e.step < last) remove_folder(e.path);
  }
}

}  // namespace weft
