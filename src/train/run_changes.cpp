// train/run_changes.cpp: what a run that goes on may have changed in its run file, and what not.
#include <fmt/core.h>

#include <map>

#include "train/run_config.h"

namespace weft {
namespace {

// Keys whose change makes another training; the others may change when a run goes on.
bool is_fixed(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("data.") || key == "seed" ||
         key == "train.global_batch" || key == "train.precision" || key == "train.tf32" ||
         key == "train.master_weights" || key == "train.loss_scale" || key == "train.optimizer";
}

}  // namespace

RunChanges compare_runs(const std::string& stored, const std::string& resolved) {
  const auto values = [](const std::string& text, const char* what) {
    RunConfig config;
    OptionTable table;
    table.take_not_built();  // another build may have written it
    bind_options(&table, &config);
    std::vector<std::string> complaints;
    table.read(parse_yaml(text, what), what, complaints);
    refuse(complaints);
    std::map<std::string, std::string> found;
    for (const OptionEntry& e : table.entries()) {
      if (!e.not_built) found[e.key] = e.value;  // others change nothing
    }
    return found;
  };
  const auto before = values(stored, "the stored run.yaml"), now = values(resolved, "the run file");
  RunChanges changes;
  for (const auto& [key, value] : now) {
    const auto old = before.find(key);
    if (old == before.end() || old->second == value) continue;
    (is_fixed(key) ? changes.refused : changes.allowed)
        .push_back(fmt::format("{}: {} -> {}", key, old->second, value));
  }
  return changes;
}

}  // namespace weft
