// train/stored_run.cpp: a resolved run file is recognized by its marks and its last section.
#include "train/stored_run.h"

#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "base/yaml.h"
#include "checkpoint/list.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostRunFileBytes = 1 << 20;
constexpr const char* kLastSection = "\ntrack:";  // of the option table

// A resolved run file has all keys, most of them marked; nobody writes such marks by hand.
bool has_marks(const std::string& text) {
  return text.find("  # default") != std::string::npos ||
         text.find("  # not built") != std::string::npos;
}

// Truncation at a line's end leaves valid YAML; the missing part of the last section does not
// matter.
bool is_whole(const std::string& text) {
  if (!text.ends_with('\n') || text.find(kLastSection) == std::string::npos) return false;
  try {
    static_cast<void>(parse_yaml(text, "run.yaml"));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// None where it is larger than any run file.
std::optional<std::string> try_read(const fs::path& path) {
  try {
    return read_file(path, kMostRunFileBytes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code unknown;  // a missing file is not the same
  return !a.empty() && fs::equivalent(a, b, unknown);
}

}  // namespace

std::string read_stored_run(const fs::path& dir) {
  return read_file(dir / "run.yaml", kMostRunFileBytes);
}

StoredRun find_stored_run(const fs::path& dir) {
  const fs::path path = dir / "run.yaml";
  const PathKind kind = path_kind(path);
  if (kind == PathKind::kNothing) return StoredRun::kNone;
  if (kind != PathKind::kFile) return StoredRun::kNotOurs;
  const std::optional<std::string> text_read = try_read(path);
  if (!text_read) return StoredRun::kNotOurs;
  const std::string& text = *text_read;
  if (text.empty()) return StoredRun::kNone;
  if (!has_marks(text)) return StoredRun::kNotOurs;
  return is_whole(text) ? StoredRun::kWhole : StoredRun::kCut;
}

bool has_events(const fs::path& dir) {
  const fs::path path = dir / "events.jsonl";
  return path_kind(path) == PathKind::kFile && read_file(path).starts_with("{\"event\":");
}

bool is_run_dir(const fs::path& dir) {
  const StoredRun stored = find_stored_run(dir);
  return stored == StoredRun::kWhole || stored == StoredRun::kCut || has_events(dir) ||
         !list_checkpoints(dir).empty();
}

void check_run_yaml(const fs::path& dir, const fs::path& run_file) {
  const fs::path place = dir / "run.yaml";
  const std::string hint =
      fmt::format("give the run its own directory (--run-dir, storage or name), or move {} away",
                  place.string());
  if (find_stored_run(dir) == StoredRun::kNotOurs) {
    const bool is_run = has_events(dir) || !list_checkpoints(dir).empty();
    throw UserError(
        fmt::format("{} was not written by weft{}, and a run in {} would replace it",
                    place.string(), is_run ? ": a user wrote it, or it is truncated" : "",
                    dir.string()),
        hint + (is_run ? ": keys are then compared with those recorded in the checkpoint" : ""));
  }
  if (!is_same_file(run_file, place) || has_events(dir) || !list_checkpoints(dir).empty()) return;
  throw UserError(
      fmt::format("{} is the run file of this command, and a run in {} would replace it",
                  place.string(), dir.string()),
      hint);
}

}  // namespace weft
