// cmd/train_memory.cpp: first the snapshots, then the asynchronous saves.
#include "cmd/train_memory.h"

#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

std::vector<std::string> resolve_slots(RunFile* file, const std::string& shortage) {
  if (shortage.empty()) return {};
  if (asks_for_snapshots(*file))
    throw UserError(shortage,
                    "set launch.snapshot_every to 0 or auto, or leave it out: where a rank dies, "
                    "all then start from the newest checkpoint");
  log_warning("{}; where a rank dies, all start from the newest checkpoint", shortage);
  file->take_no_snapshots("memory is short");
  return {"--set", "launch.snapshot_every=0"};
}

}  // namespace

bool asks_for_snapshots(const RunFile& file) {
  return file.was_given("launch.snapshot_every") && file.config().launch.snapshot_steps() > 0;
}

std::vector<std::string> resolve_async(RunFile* file, const std::string& shortage) {
  if (shortage.empty() || !file->config().checkpoint.async) return {};
  if (file->was_given("checkpoint.async"))
    throw UserError(shortage,
                    "set checkpoint.async to false, or leave it out: checkpoints are then "
                    "written between steps");
  log_warning("{}; checkpoints are written between steps", shortage);
  file->save_synchronously("memory is short");
  return {"--set", "checkpoint.async=false"};
}

std::vector<std::string> resolve_copies(RunFile* file, bool is_forced,
                                        std::optional<int64_t>* planned_bytes) {
  const CopiesShortage shortage = check_memory(file->config(), is_forced);
  *planned_bytes = shortage.planned_bytes;
  std::vector<std::string> overrides = resolve_slots(file, shortage.slots);
  for (const std::string& word : resolve_async(file, shortage.async)) overrides.push_back(word);
  return overrides;
}

}  // namespace weft
