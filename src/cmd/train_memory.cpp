// cmd/train_memory.cpp: first the snapshots, then the asynchronous saves.
#include "cmd/train_memory.h"

#include "base/error.h"
#include "base/log.h"
#include "planning/snapshot_bytes.h"

namespace weft {

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
  std::string shortage = check_memory(file->config(), is_forced, planned_bytes);
  if (shortage.empty() || !has_snapshot_slots(file->config())) return resolve_async(file, shortage);
  if (file->was_given("launch.snapshot_every") && file->config().launch.snapshot_steps() > 0)
    throw UserError(shortage,
                    "set launch.snapshot_every to 0 or auto, or leave it out: where a rank dies, "
                    "all then start from the newest checkpoint");
  log_warning("{}; where a rank dies, all start from the newest checkpoint", shortage);
  file->take_no_snapshots("memory is short");
  std::vector<std::string> overrides =
      resolve_async(file, check_memory(file->config(), is_forced, planned_bytes));
  overrides.insert(overrides.begin(), {"--set", "launch.snapshot_every=0"});
  return overrides;
}

}  // namespace weft
