// train/old_run.cpp: the names of a run's files; what marks the directory as a run's goes last.
#include "train/old_run.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/replace_folder.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr const char* kNames[] = {"checkpoints",         "final",        "log",
                                  "metrics.jsonl",       "loss.png",     "loss.svg",
                                  "tensor_hashes.jsonl", "events.jsonl", "run.yaml"};

fs::path renamed(const fs::path& dir, const char* name) {
  return dir / (std::string(name) + ".removing");
}

// All keys are in a resolved run file, most of them marked; nobody writes such marks by hand.
bool is_resolved_run(const fs::path& path) {
  if (path_kind(path) != PathKind::kFile) return false;
  const std::string text = read_file(path, 1 << 20);
  return text.find("  # default") != std::string::npos ||
         text.find("  # not built") != std::string::npos;
}

bool is_events(const fs::path& path) {
  return path_kind(path) == PathKind::kFile && read_file(path).starts_with("{\"event\":");
}

// A start that was killed at once leaves empty folders and files.
bool holds_something(const fs::path& path) {
  const PathKind kind = path_kind(path);
  if (kind == PathKind::kFolder) return !folder_names(path).empty();
  return kind != PathKind::kNothing && !(kind == PathKind::kFile && fs::is_empty(path));
}

}  // namespace

void check_old_run(const fs::path& dir) {
  if (is_resolved_run(dir / "run.yaml") || is_events(dir / "events.jsonl")) return;
  std::string there;
  for (const char* name : kNames) {
    if (holds_something(dir / name)) there += (there.empty() ? "" : ", ") + std::string(name);
  }
  if (there.empty()) return;
  throw UserError(
      fmt::format("no run of weft is in {}: --overwrite would delete {}, which no run wrote",
                  dir.string(), there),
      "move that away, or give the run another name or --run-dir");
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
