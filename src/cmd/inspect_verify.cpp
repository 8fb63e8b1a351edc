// cmd/inspect_verify.cpp: every byte of a checkpoint, or of all checkpoints of a run directory.
#include "base/error.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/list.h"
#include "cmd/inspect.h"

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
  throw UserError(
      fmt::format("--verify {}: this is neither a checkpoint nor a run directory", path),
      "only checkpoints of weft have checksums; leave --verify out for other files");
}

void require_sound(const Json& verification) {
  std::string damage;
  for (const Json& checkpoint : verification.at("checkpoint").as_array()) {
    if (!checkpoint.at("sound").as_bool()) damage += "\n  " + checkpoint.at("damage").as_string();
  }
  if (!damage.empty())
    throw RunError("damaged:" + damage, "resume from a checkpoint before it, or copy it again");
}

}  // namespace weft
