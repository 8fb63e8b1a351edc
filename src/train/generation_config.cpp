// train/generation_config.cpp: eos_token_id combined from the folder, the tokenizer and the rows.
#include "train/generation_config.h"

#include <algorithm>

#include "base/error.h"
#include "data/example.h"
#include "generate/stop_ids.h"

namespace weft {
namespace {

constexpr const char* kFile = "generation_config.json";
using Ids = std::vector<int32_t>;

void add_new(Ids& ids, const Ids& more) {
  for (const int32_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

// A number where there is one, as transformers writes it.
Json to_json(const Ids& ids) {
  if (ids.size() == 1) return ids[0];
  return Json::Array(ids.begin(), ids.end());
}

// transformers writes its keys sorted: a new one is inserted at its sorted position.
void put(Json& object, const std::string& key, Json value) {
  if (object.find(key)) return object.set(key, std::move(value));
  Json::Object& entries = object.as_object();
  const auto after = std::find_if(entries.begin(), entries.end(),
                                  [&key](const auto& entry) { return entry.first > key; });
  entries.insert(after, {key, std::move(value)});
}

// Random weights have learned only the tokenizer's special tokens as ends: a folder's configuration
// may belong to another tokenizer.
Ids own_ids(const Session& session, Ids ids) {
  if (session.config.model.init != "random" || !session.tokenizer->eos_id()) return ids;
  std::erase_if(ids, [&](int32_t id) { return !session.tokenizer->is_special(id); });
  add_new(ids, {*session.tokenizer->eos_id()});
  return ids;
}

std::optional<Json> read_folder(const Session& session) {
  const auto files = session.folder.side_files();
  const auto found = files.find(kFile);
  if (found == files.end()) return std::nullopt;
  Json json = parse_json(found->second, (session.folder.path() / kFile).string());
  require(json.is_object(), "{} holds {}, wanted an object",
          (session.folder.path() / kFile).string(), json.kind());
  return json;
}

}  // namespace

Json saved_config(const Session& session) {
  Json config = trained_config(session.model_config, session.config);
  const Ids before = find_stop_ids(nullptr, config, nullptr), ids = own_ids(session, before);
  if (ids != before) put(config, "eos_token_id", to_json(ids));
  return config;
}

std::optional<std::string> saved_generation_config(const Session& session) {
  const std::optional<Json> folder = read_folder(session);
  const Json config = saved_config(session), none;
  const Ids before =
      find_stop_ids(nullptr, folder ? none : session.folder.config(), folder ? &*folder : nullptr);
  Ids ids = own_ids(session, find_stop_ids(nullptr, config, folder ? &*folder : nullptr));
  const RunConfig& run = session.config;
  const ExampleMaker maker(run.data, *session.tokenizer, session.model->vocab_size(),
                           session.kind());
  add_new(ids, maker.end_ids());
  if (ids == before) {
    if (!folder) return std::nullopt;
    return session.folder.side_files().at(kFile);
  }
  Json made = folder.value_or(Json(Json::Object{}));
  put(made, "eos_token_id", to_json(ids));
  // Not in config.json: there it would also keep torch from training that row of the embedding.
  if (!folder && session.tokenizer->pad_id())
    put(made, "pad_token_id", *session.tokenizer->pad_id());
  return made.dump(2, Json::Digits::kShortest) + "\n";
}

}  // namespace weft
