// config/run_changes.h: compares two resolved run files: what a resumed run must not change.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft {

// Which keys a resumed run may not change freely; all other keys may change. `key`: a key of the
// option table, or a common prefix ("model."). The first rule that matches a key applies.
enum class OnResume { kFree, kFixed, kConverted, kExact, kMomentum };
struct ResumeRule {
  const char* key;
  OnResume rule;
};
std::span<const ResumeRule> resume_rules();
// "must not change: ...", the text for pages and messages.
const char* words_of(OnResume rule);
// The keys of a rule as a list, each in `quote`s: "model.*, data.*, seed".
std::string keys_of(OnResume rule, const char* quote = "");
// The end of a hint: the keys that must not change.
std::string fixed_keys_hint();

// Each as "key: old -> new".
struct RunChanges {
  std::vector<std::string> refused;  // it would be a different training
  std::vector<std::string> allowed;  // all others
  std::vector<std::string> future;   // those of `allowed` that affect future steps
  bool can_convert = false;          // converts would allow all that is refused
};

// converts: weights and states are converted to another train.precision or train.master_weights.
// UserError, which names it as `what`, where the stored file cannot be read as a run file.
RunChanges compare_runs(const std::string& stored, const std::string& resolved,
                        const char* what = "the stored run.yaml", bool converts = false);
// The end of a hint where can_convert; else empty.
std::string convert_hint(const RunChanges& changes);

}  // namespace weft
