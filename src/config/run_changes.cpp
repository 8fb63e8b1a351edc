// config/run_changes.cpp: which keys a resumed run may have changed in its run file.
#include "config/run_changes.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "config/run_config.h"

namespace weft {
namespace {

// kExact and kMomentum depend on more than the key: train/saver.cpp and train/same_optimizer.cpp
// compare them with what the checkpoint holds.
constexpr ResumeRule kRules[] = {
    {"model.", OnResume::kFixed},
    {"data.max_row_bytes", OnResume::kFree},  // refuses a row, or changes nothing
    {"data.", OnResume::kFixed},
    {"seed", OnResume::kFixed},
    {"train.global_batch", OnResume::kFixed},
    {"train.tf32", OnResume::kFixed},
    {"train.loss_scale", OnResume::kFixed},
    {"train.optimizer", OnResume::kFixed},
    {"train.precision", OnResume::kConverted},
    {"train.master_weights", OnResume::kConverted},
    {"parallel.exact_tp", OnResume::kExact},
    {"parallel.exact_dp", OnResume::kExact},
    {"parallel.exact_rows", OnResume::kExact},
    {"train.momentum", OnResume::kMomentum},
};

bool has_rule(const std::string& key, OnResume rule) {
  for (const ResumeRule& r : kRules) {
    const bool is_section = std::string_view(r.key).ends_with('.');
    if (is_section ? key.starts_with(r.key) : key == r.key) return r.rule == rule;
  }
  return false;
}

bool is_converted(const std::string& key) { return has_rule(key, OnResume::kConverted); }

// Keys whose change would make the training a different one.
bool is_fixed(const std::string& key) {
  return has_rule(key, OnResume::kFixed) || is_converted(key);
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

std::span<const ResumeRule> resume_rules() { return kRules; }

const char* words_of(OnResume rule) {
  switch (rule) {
    case OnResume::kFree:
      return "may change";
    case OnResume::kFixed:
      return "must not change: the training would be a different one";
    case OnResume::kConverted:
      return "must not change, unless `--convert-states` converts weights and states";
    case OnResume::kExact:
      return "must not change between exact-mode runs; 0 and the number chosen for 0 are equal";
    case OnResume::kMomentum:
      return "with `train.optimizer: sgd`, must not change between 0 and another value";
  }
  return "";
}

std::string keys_of(OnResume rule, const char* quote) {
  std::string text;
  for (const ResumeRule& r : kRules) {
    if (r.rule != rule) continue;
    const char* rest = std::string_view(r.key).ends_with('.') ? "*" : "";
    text += fmt::format("{}{}{}{}{}", text.empty() ? "" : ", ", quote, r.key, rest, quote);
  }
  return text;
}

std::string fixed_keys_hint() {
  return fmt::format("; {}, {} must not change: docs/keys.md lists which keys may",
                     keys_of(OnResume::kFixed), keys_of(OnResume::kConverted));
}

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
