// config/run_changes.h: two resolved run files compared: what a run that goes on may not change.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Each as "key: old -> new".
struct RunChanges {
  std::vector<std::string> refused;  // it would be another training
  std::vector<std::string> allowed;  // all others
  std::vector<std::string> future;   // of `allowed`: those that change steps still to come
};

// UserError, which names it as `what`, where the stored file cannot be read as a run file.
RunChanges compare_runs(const std::string& stored, const std::string& resolved,
                        const char* what = "the stored run.yaml");

}  // namespace weft
