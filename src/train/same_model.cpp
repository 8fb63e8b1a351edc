// train/same_model.cpp: two configurations, key by key.
#include "train/same_model.h"

#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;

bool is_note(const std::string& key) {
  // Keys about where a continuation ends do not affect training.
  static const std::set<std::string> kNotes = {
      "architectures", "dtype", "eos_token_id", "torch_dtype", "use_cache", "transformers_version"};
  return key.starts_with("_") || kNotes.contains(key);
}

std::string text_of(const Json* value) {
  return value && !value->is_null() ? value->dump() : "none";
}

std::string differences(const Json& before, const Json& now) {
  std::set<std::string> keys;
  for (const Json* config : {&before, &now}) {
    for (const auto& [key, value] : config->as_object()) keys.insert(key);
  }
  std::string list;
  for (const std::string& key : keys) {
    const std::string old = text_of(before.find(key)), then = text_of(now.find(key));
    if (!is_note(key) && old != then) list += fmt::format("\n    {}: {} -> {}", key, old, then);
  }
  return list;
}

}  // namespace

void check_same_model(const std::filesystem::path& checkpoint, const Session& session) {
  const std::filesystem::path kept = checkpoint / "config.json";
  if (!std::filesystem::exists(kept)) return;
  const Json before = parse_json(read_file(kept, kMostBytes), kept.string());
  const std::string list =
      differences(before, trained_config(session.model_config, session.config));
  if (list.empty()) return;
  throw UserError(
      fmt::format("the model's config.json differs from that of {}:{}", checkpoint.string(), list),
      fmt::format("undo the change; or train the checkpoint's weights in a new run: weft export {} "
                  "DIR, then --set model.path=DIR --set model.init=pretrained",
                  checkpoint.string()));
}

}  // namespace weft
