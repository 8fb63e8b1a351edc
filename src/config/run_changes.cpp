// config/run_changes.cpp: which keys a resumed run may have changed in its run file.
#include "config/run_changes.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "config/run_config.h"

namespace weft {
namespace {

// Keys whose change makes it a different training; the others may change on resume.
bool is_fixed(const std::string& key) {
  if (key == "data.max_row_bytes") return false;  // refuses a row, or changes nothing
  return key.starts_with("model.") || key.starts_with("data.") || key == "seed" ||
         key == "train.global_batch" || key == "train.precision" || key == "train.tf32" ||
         key == "train.master_weights" || key == "train.loss_scale" || key == "train.optimizer";
}

bool is_converted(const std::string& key) {
  return key == "train.precision" || key == "train.master_weights";
}

// Keys that may change and affect what the next steps compute, up to the order of sums. The other
// keys have no effect on a finished run.
bool is_of_future(const std::string& key) {
  static const std::set<std::string> kOthers = {
      "train.log_every", "train.eval_every", "train.micro_batch", "train.grad_accum",
      "train.recompute", "train.offload",    "train.offload_to"};
  return key.starts_with("train.") && !kOthers.contains(key);
}

}  // namespace

RunChanges compare_runs(const std::string& stored, const std::string& resolved, const char* what,
                        bool converts) {
  const auto values = [](const std::string& text, const char* name) {
    RunConfig config;
    OptionTable table;
    table.take_not_built();  // another build may have written it
    bind_options(&table, &config);
    std::vector<std::string> complaints;
    table.read(parse_yaml(text, name), name, complaints);
    refuse(complaints);
    std::map<std::string, std::string> found;
    for (const OptionEntry& e : table.entries()) {
      if (!e.not_built) found[e.key] = e.value;  // no effect
    }
    return found;
  };
  const auto before = values(stored, what), now = values(resolved, "the run file");
  RunChanges changes;
  size_t num_convertible = 0;
  for (const auto& [key, value] : now) {
    const auto old = before.find(key);
    if (old == before.end() || old->second == value) continue;
    const std::string change = fmt::format("{}: {} -> {}", key, old->second, value);
    const bool is_refused = is_fixed(key) && !(converts && is_converted(key));
    (is_refused ? changes.refused : changes.allowed).push_back(change);
    if (!is_refused && is_of_future(key)) changes.future.push_back(change);
    if (is_refused && is_converted(key)) ++num_convertible;
  }
  changes.can_convert = num_convertible > 0 && num_convertible == changes.refused.size();
  return changes;
}

std::string convert_hint(const RunChanges& changes) {
  return changes.can_convert ? "; or add --convert-states, which converts weights and states" : "";
}

}  // namespace weft
