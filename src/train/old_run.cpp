// train/old_run.cpp: the names of a run's files; what marks the directory as a run is deleted last.
#include "train/old_run.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/replace_folder.h"
#include "train/stored_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr const char* kNames[] = {"checkpoints",         "final",        "log",
                                  "metrics.jsonl",       "loss.png",     "loss.svg",
                                  "tensor_hashes.jsonl", "events.jsonl", "run.yaml"};

fs::path renamed(const fs::path& dir, const char* name) {
  return dir / (std::string(name) + ".removing");
}

// A start that was killed early leaves empty folders and files.
bool holds_something(const fs::path& path) {
  const PathKind kind = path_kind(path);
  if (kind == PathKind::kFolder) return !folder_names(path).empty();
  return kind != PathKind::kNothing && !(kind == PathKind::kFile && fs::is_empty(path));
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of checkpoints/ and log/: step-00000100 and best, with the suffixes of saving, pruning and
// damage, and abandoned; rank-00000.log. A user's copy has another suffix.
bool is_of_a_run(const std::string& folder, const std::string& name) {
  if (folder == "log") return name.starts_with("rank-") && name.ends_with(".log");
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot), end = name.substr(base.size());
  const bool is_step =
      base.starts_with("step-") && base.size() >= 13 && is_digits(std::string_view(base).substr(5));
  const bool has_own_end = end.empty() || end == ".writing" || end == ".removing" ||
                           end == ".old" || end == ".damaged" ||
                           (end.starts_with(".damaged-") && is_digits(end.substr(9)));
  return ((is_step || base == "best") && has_own_end) || name == "abandoned";
}

// Another program's folders may be in a directory in which a run was started later.
std::string foreign_entries(const fs::path& dir) {
  std::string there;
  for (const char* folder : {"checkpoints", "log"}) {
    if (path_kind(dir / folder) != PathKind::kFolder) continue;
    for (const std::string& name : folder_names(dir / folder)) {
      if (is_of_a_run(folder, name)) continue;
      there += fmt::format("{}{}/{}", there.empty() ? "" : ", ", folder, name);
    }
  }
  return there;
}

}  // namespace

void check_old_run(const fs::path& dir) {
  constexpr const char* kHint = "move it away, or give the run another name or --run-dir";
  std::string there;
  const StoredRun stored = find_stored_run(dir);
  if (stored == StoredRun::kWhole || stored == StoredRun::kCut || has_events(dir)) {
    there = foreign_entries(dir);
    if (there.empty()) return;
    throw UserError(
        fmt::format("--overwrite would delete {} in {}, which no run wrote", there, dir.string()),
        kHint);
  }
  for (const char* name : kNames) {
    if (holds_something(dir / name)) there += (there.empty() ? "" : ", ") + std::string(name);
  }
  if (there.empty()) return;
  throw UserError(
      fmt::format("{} holds no weft run: --overwrite would delete {}, which no run wrote",
                  dir.string(), there),
      kHint);
}

void remove_old_run(const fs::path& dir) {
  for (const char* name : kNames) {
    remove_folder(renamed(dir, name));
    if (path_kind(dir / name) == PathKind::kNothing) continue;
    move_folder(dir / name, renamed(dir, name));
    remove_folder(renamed(dir, name));
  }
}

void remove_renamed(const fs::path& dir) {
  for (const char* name : kNames) {
    if (path_kind(renamed(dir, name)) != PathKind::kNothing) remove_folder(renamed(dir, name));
  }
}

}  // namespace weft
