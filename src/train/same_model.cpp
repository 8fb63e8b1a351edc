// train/same_model.cpp: two configurations, key by key.
#include "train/same_model.h"

#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "model/family.h"

namespace weft {
namespace {

constexpr size_t kMostConfigBytes = size_t{16} << 20, kMostTokenizerBytes = size_t{1} << 28;

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

std::string architecture_of(const Json& config) {
  const Json* list = config.find("architectures");
  if (list && list->is_array() && !list->as_array().empty() && list->as_array()[0].is_string())
    return list->as_array()[0].as_string();
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : "";
}

// Sizes by the family's names for them, where both have them.
std::string other_sizes(const Json& theirs, const Json& ours) {
  std::string list;
  for (const std::string& key : size_keys(ours)) {
    const Json *a = theirs.find(key), *b = ours.find(key);
    if (!a || !b || text_of(a) == text_of(b)) continue;
    list +=
        fmt::format("{}{} {} instead of {}", list.empty() ? "" : ", ", key, text_of(a), text_of(b));
  }
  return list;
}

}  // namespace

void check_same_architecture(const LogicalModel& source, const Session& session) {
  if (!source.config.is_object()) return;
  const Json ours = trained_config(session.model_config, session.config);
  const std::string theirs = architecture_of(source.config), wanted = architecture_of(ours);
  const bool is_other = !theirs.empty() && !wanted.empty() && theirs != wanted;
  const std::string sizes = other_sizes(source.config, ours);
  if (!is_other && sizes.empty()) return;
  throw UserError(
      fmt::format("{} is not a model of this run file, whose model.path is {}: it is a {}",
                  source.path.string(), session.folder.path().string(),
                  is_other ? fmt::format("{}, not a {}", theirs, wanted)
                           : fmt::format("{} with {}", theirs, sizes)),
      fmt::format("evaluate it with --set model.path={} --set model.init=pretrained",
                  source.path.string()));
}

void check_same_tokenizer(const std::filesystem::path& checkpoint, const Session& session) {
  if (session.config.data.tokenizer == "bytes") return;
  for (const auto& [name, bytes] : session.tokenizer->files()) {
    const std::filesystem::path kept = checkpoint / name;
    if (!std::filesystem::exists(kept) || read_file(kept, kMostTokenizerBytes) == bytes) continue;
    throw UserError(fmt::format("the tokenizer file {} differs from {}", name, kept.string()),
                    fmt::format("undo the change (the file of the run is {}); or train the "
                                "checkpoint's weights in a new run: weft export {} DIR, then --set "
                                "model.path=DIR --set model.init=pretrained",
                                kept.string(), checkpoint.string()));
  }
}

void check_same_model(const std::filesystem::path& checkpoint, const Session& session) {
  const std::filesystem::path kept = checkpoint / "config.json";
  if (!std::filesystem::exists(kept)) return;
  const Json before = parse_json(read_file(kept, kMostConfigBytes), kept.string());
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
