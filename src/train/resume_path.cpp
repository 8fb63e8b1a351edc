// train/resume_path.cpp: a checkpoint, a run directory, or neither.
#include "train/resume_path.h"

#include <optional>

#include "base/error.h"
#include "base/indented_lines.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/export.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

// By the given name, and with links resolved: either may be a link.
bool is_below(const fs::path& path, const fs::path& folder) {
  if (path_kind(folder) != PathKind::kFolder) return false;
  std::error_code unknown;
  for (fs::path p : {fs::absolute(path).lexically_normal(), fs::weakly_canonical(path, unknown)}) {
    for (; p.has_relative_path(); p = p.parent_path()) {
      if (fs::equivalent(p, folder, unknown)) return true;
    }
  }
  return false;
}

// The run directory that a path names: itself, or the folder above its checkpoints/.
std::optional<fs::path> run_dir_at(const fs::path& path) {
  if (path_kind(path / "checkpoints") == PathKind::kFolder) return path;
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  if (plain.filename() == "checkpoints" && path_kind(plain) == PathKind::kFolder)
    return plain.has_parent_path() ? plain.parent_path() : fs::path(".");
  return std::nullopt;
}

[[noreturn]] void refuse_path(const std::string& path) {
  if (path_kind(path) == PathKind::kFolder && is_export(path)) {
    throw UserError(
        fmt::format("--resume {}: this is a model without the state of its training", path),
        fmt::format("a run starts from its weights with --set model.path={} --set "
                    "model.init=pretrained; to resume, name a checkpoint (RUN/checkpoints/step-N)",
                    path));
  }
  throw UserError(fmt::format("--resume {}: there is no complete checkpoint", path),
                  "wanted: auto, never, a checkpoint (RUN/checkpoints/step-N), or a run directory");
}

NamedStart newest_of(const fs::path& other, const std::vector<DamagedFolder>& known) {
  CheckpointSearch found = find_sound_checkpoint(other, known);
  if (!found.sound) {
    const auto best = find_sound_best(other);
    throw UserError(fmt::format("--resume {}: there is no sound checkpoint of a step in {}",
                                other.string(), (other / "checkpoints").string()),
                    best ? fmt::format("its best by evaluation loss, of step {}, is: --resume {}",
                                       best->step, best->path.string())
                         : "name a checkpoint (RUN/checkpoints/step-N)");
  }
  log_info("--resume {}: its newest complete checkpoint is {}", other.string(),
           found.sound->string());
  return {*found.sound, std::move(found.state), true, std::move(found.damaged)};
}

}  // namespace

NamedStart find_named_start(const std::string& path, const RunStart& start) {
  require(!path.empty(),
          "--resume has no path; wanted: auto, never, a checkpoint, a run directory");
  NamedStart named;
  if (is_checkpoint(path)) {
    for (const DamagedFolder& d : start.found_damaged) {
      if (d.path == path) throw DamagedCheckpoint(d.reason);
    }
    const CheckpointReader reader(path);
    reader.check_structure();
    named.checkpoint = path;
    named.state = reader.state();
  } else if (const auto other = run_dir_at(path)) {
    named = newest_of(*other, start.found_damaged);
  } else {
    refuse_path(path);
  }
  named.is_own = is_below(named.checkpoint, start.dir / "checkpoints");
  if (named.is_own) return named;
  for (const DamagedFolder& damaged : named.damaged) log_warning("{}: skipped", damaged.reason);
  named.damaged.clear();  // another run's folders are not renamed
  return named;
}

void check_nothing_replaced(const fs::path& run_dir, const fs::path& checkpoint) {
  std::vector<std::string> there;
  for (const fs::path& path : list_checkpoints(run_dir))
    there.push_back("checkpoints/" + path.filename().string());
  for (const DamagedFolder& folder : list_uncommitted(run_dir)) there.push_back(folder.reason);
  for (const std::string& name : list_set_aside(run_dir)) there.push_back("checkpoints/" + name);
  if (is_checkpoint(run_dir / "checkpoints" / "best")) there.push_back("checkpoints/best");
  if (path_kind(run_dir / "final") == PathKind::kFolder && !folder_names(run_dir / "final").empty())
    there.push_back("final/");
  if (there.empty()) return;
  throw UserError(fmt::format("{} is a checkpoint of another run, and {} has its own:{}",
                              checkpoint.string(), run_dir.string(), indented_lines(there)),
                  "give the new run another name (--set name=NEW), storage or --run-dir; or omit "
                  "--resume to continue with what is there; or add --overwrite to discard it");
}

}  // namespace weft
