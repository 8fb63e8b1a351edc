// cmd/inspect_verify.cpp: every byte of a checkpoint, of all checkpoints of a run directory, or of
// the files of torch.save in a folder.
#include <algorithm>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/deepspeed_files.h"
#include "checkpoint/foreign.h"
#include "checkpoint/list.h"
#include "cmd/inspect.h"
#include "io/torch_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Json verify_one(const fs::path& folder) {
  Json out;
  out.set("path", folder.string());
  try {
    const CheckpointReader reader(folder);
    reader.verify();
    out.set("step", reader.state().at("step"));
    out.set("bytes_checked", reader.bytes_read());
    out.set("sound", true);
  } catch (const DamagedCheckpoint& damage) {
    out.set("sound", false);
    out.set("damage", damage.what());
  }
  return out;
}

Json::Array verify_run(const fs::path& run_dir) {
  Json::Array found;
  for (const fs::path& folder : list_checkpoints(run_dir)) found.push_back(verify_one(folder));
  for (const DamagedFolder& folder : list_uncommitted(run_dir)) {
    Json out;
    out.set("path", folder.path.string());
    out.set("sound", false);
    out.set("damage", folder.reason);
    found.push_back(std::move(out));
  }
  const fs::path best = run_dir / "checkpoints" / "best";
  if (path_kind(best) == PathKind::kFolder) found.push_back(verify_one(best));
  return found;
}

Json verify_torch(const fs::path& file) {
  Json out;
  out.set("path", file.string());
  try {
    const CheckedBytes bytes = verify_torch_file(file);
    out.set("bytes_checked", bytes.checked);
    if (bytes.without_checksum > 0) out.set("bytes_without_checksum", bytes.without_checksum);
    out.set("sound", true);
  } catch (const UserError& damage) {
    out.set("sound", false);
    out.set("damage", damage.what());
  }
  return out;
}

// By the end of the name, so that one that is no archive any more counts as damaged.
bool has_torch_name(const fs::path& path) {
  const std::string end = path.extension().string();
  return (end == ".bin" && path.filename().string().starts_with("pytorch_model")) || end == ".pt" ||
         end == ".pth";
}

Json::Array verify_torch_files(const fs::path& path) {
  std::vector<fs::path> files;
  if (path_kind(path) == PathKind::kFolder) {
    const fs::path folder = is_deepspeed(path) ? deepspeed_step_folder(path) : path;
    const auto add = [&files](const fs::directory_entry& entry) {
      if (entry.is_regular_file() && has_torch_name(entry.path())) files.push_back(entry.path());
    };
    for (const auto& entry : fs::directory_iterator(folder)) add(entry);
    // A universal checkpoint has its weights and states there, in a folder per tensor.
    if (path_kind(folder / "zero") == PathKind::kFolder) {
      for (const auto& entry : fs::recursive_directory_iterator(folder / "zero")) add(entry);
    }
  } else if (is_torch_file(path) || (fs::is_regular_file(path) && has_torch_name(path))) {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  Json::Array found;
  for (const fs::path& file : files) found.push_back(verify_torch(file));
  return found;
}

}  // namespace

Json verify_checkpoints(const std::string& path) {
  Json out;
  out.set("kind", "verification");
  out.set("path", path);
  if (is_checkpoint(path)) {
    out.set("checkpoint", Json::Array{verify_one(path)});
    return out;
  }
  if (path_kind(fs::path(path) / "checkpoints") == PathKind::kFolder) {
    out.set("checkpoint", verify_run(path));
    if (!out.at("checkpoint").as_array().empty()) return out;
    throw UserError(fmt::format("{} has no complete checkpoint yet", path),
                    "wait for its first checkpoint, or give another folder");
  }
  require_no_list(path);
  if (Json::Array files = verify_torch_files(path); !files.empty()) {
    out.set("file", std::move(files));
    return out;
  }
  throw UserError(
      fmt::format("--verify {}: this is neither a checkpoint nor a run directory, nor has it files "
                  "of torch.save",
                  path),
      "other files have no checksums; leave --verify out for them");
}

void require_no_list(const fs::path& path) {
  if (path_kind(path) != PathKind::kFolder) return;
  for (const std::string& name : folder_names(path)) {
    if (!is_checkpoint(path / name)) continue;
    throw UserError(fmt::format("{} is a folder of checkpoints", path.string()),
                    fmt::format("give one of them ({}), or the run directory above it",
                                (path / name).string()));
  }
}

void require_sound(const Json& verification) {
  std::string damage;
  const bool is_ours = verification.find("checkpoint") != nullptr;
  for (const Json& part : verification.at(is_ours ? "checkpoint" : "file").as_array()) {
    if (!part.at("sound").as_bool()) damage += "\n  " + part.at("damage").as_string();
  }
  if (damage.empty()) return;
  throw RunError("damaged:" + damage, is_ours
                                          ? "resume from a checkpoint before it, or copy it again"
                                          : "copy or fetch it again");
}

}  // namespace weft
