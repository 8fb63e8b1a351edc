// text/tokenizer_config.cpp: tokenizer_config.json and its older companions, read as transformers
// reads them.
//
// Tokens are added in this order: added_tokens_decoder by id; then the named special tokens (eos,
// bos, pad, ...) that do not exist yet. special_tokens_map.json and added_tokens.json are used only
// where the configuration has no added_tokens_decoder, as in transformers.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "text/normalize.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

constexpr std::string_view kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

// A token is a string or an object with "content".
std::optional<AddedToken> token_of(const Json* json, const std::string& what) {
  if (!json || json->is_null()) return std::nullopt;
  AddedToken token;
  if (json->is_string())
    token.content = json->as_string();
  else
    token = read_added_token(*json, what);
  token.special = true;
  if (json->is_string()) token.normalized = false;
  return token;
}

void add_decoder(const Json& decoder, const std::string& what, TokenizerParts& parts) {
  std::map<int64_t, const Json*> by_id;
  for (const auto& [key, json] : decoder.as_object()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    require(error == std::errc() && end == key.data() + key.size() && id >= 0,
            "{}: added_tokens_decoder: '{}' is not an id", what, key);
    by_id[id] = &json;
  }
  for (const auto& [id, json] : by_id) parts.add_token(read_added_token(*json, what), id, what);
}

void add_legacy(const Json& tokens, const std::string& what, TokenizerParts& parts) {
  std::map<int64_t, AddedToken> by_id;
  for (const auto& [content, id] : tokens.as_object()) {
    AddedToken token;
    token.content = content;
    token.normalized = true;
    check_added_id(content, id.as_int(), what);
    by_id[id.as_int()] = token;
  }
  for (const auto& [id, token] : by_id) {
    const std::string& content = token.content;
    const bool known = std::any_of(parts.added.begin(), parts.added.end(),
                                   [&](const AddedToken& t) { return t.content == content; });
    if (!known) parts.add_token(token, id, what);
  }
}

// The named tokens, with the class's defaults for names that the files do not mention.
Json named_tokens(const ConfigFiles& files, const std::string& class_name) {
  Json named{Json::Object{}};
  const bool gpt2 = class_name == "GPT2Tokenizer", qwen2 = class_name == "Qwen2Tokenizer";
  if (gpt2 || qwen2) named.set("eos_token", "<|endoftext|>");
  if (gpt2) named.set("bos_token", "<|endoftext|>");
  if (qwen2) named.set("pad_token", "<|endoftext|>");
  if (class_name == "T5Tokenizer") {
    named.set("eos_token", "</s>");
    named.set("unk_token", "<unk>");
    named.set("pad_token", "<pad>");
  }
  const bool legacy = !files.config.find("added_tokens_decoder");
  for (const Json* source : {&files.config, legacy ? &files.special_tokens : nullptr}) {
    if (!source) continue;
    for (const std::string_view key : kNamed)
      if (const Json* value = source->find(key)) named.set(std::string(key), *value);
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
      if (const Json* value = source->find(key); value && value->is_array()) named.set(key, *value);
  }
  return named;
}

void add_named(const Json& named, const std::string& what, TokenizerParts& parts) {
  const auto add = [&](const Json* json) {
    const std::optional<AddedToken> token = token_of(json, what);
    if (!token) return;
    for (AddedToken& known : parts.added) {
      if (known.content != token->content) continue;
      known.special = true;
      return;
    }
    parts.add_token(*token, -1, what);
  };
  for (const std::string_view key : kNamed) add(named.find(key));
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    if (const Json* list = named.find(key))
      for (const Json& json : list->as_array()) add(&json);
}

void set_post_processor(const Json& config, TokenizerParts& parts) {
  const Json *bos = config.find("add_bos_token"), *eos = config.find("add_eos_token");
  if (!bos && !eos) return;
  parts.before.clear();
  parts.after.clear();
  const auto on = [](const Json* json) { return json && !json->is_null() && json->as_bool(); };
  if (on(bos) && parts.bos) parts.before.push_back(*parts.bos);
  if (on(eos) && parts.eos) parts.after.push_back(*parts.eos);
}

void set_class(const std::string& name, const Json& config, const std::string& what,
               TokenizerParts& parts) {
  if (name == "Qwen2Tokenizer") {
    parts.pattern = SplitPattern::kQwen2;
    parts.normalizer.add("NFC", to_nfc);
  } else if (name == "GPT2Tokenizer") {
    parts.pattern = SplitPattern::kGpt2;
  } else {
    throw UserError(fmt::format("{}: tokenizer_class {} with vocab.json and merges.txt is not "
                                "supported; supported: GPT2Tokenizer, Qwen2Tokenizer",
                                what, name),
                    "save the tokenizer with transformers, which writes a tokenizer.json");
  }
  const Json* prefix = config.find("add_prefix_space");
  parts.add_prefix_space = prefix && !prefix->is_null() && prefix->as_bool();
  require(!parts.add_prefix_space || parts.pattern == SplitPattern::kGpt2,
          "{}: add_prefix_space with {} is not supported", what, name);
}

}  // namespace

std::string class_of(const Json& config) {
  const Json* name = config.find("tokenizer_class");
  if (!name || name->is_null()) return "";
  std::string text = name->as_string();
  if (text.ends_with("Fast")) text.resize(text.size() - 4);
  return text;
}

void apply_tokenizer_config(const ConfigFiles& files, const std::string& where,
                            TokenizerParts& parts) {
  const std::string what = where + "/tokenizer_config.json";
  const Json& config = files.config;
  require(config.is_null() || config.is_object(), "{}: wanted an object, got {}", what,
          config.kind());
  std::string class_name = class_of(config);
  const bool is_made = parts.is_described || parts.unigram;
  if (class_name.empty() && !is_made) class_name = "GPT2Tokenizer";
  if (class_name.empty() && parts.unigram && !parts.is_described) class_name = "T5Tokenizer";
  if (!is_made) set_class(class_name, config, what, parts);

  const Json* split = config.find("split_special_tokens");
  require(!split || split->is_null() || !split->as_bool(),
          "{}: split_special_tokens: true is not supported", what);

  if (const Json* decoder = config.find("added_tokens_decoder"))
    add_decoder(*decoder, what, parts);
  else if (!files.added_tokens.is_null())
    add_legacy(files.added_tokens, where + "/added_tokens.json", parts);
  const Json named = named_tokens(files, class_name);
  add_named(named, what, parts);
  const auto id_of = [&](std::string_view key) -> std::optional<int32_t> {
    const std::optional<AddedToken> token = token_of(named.find(key), what);
    if (!token || token->content.empty()) return std::nullopt;
    return parts.find(token->content);
  };
  parts.eos = id_of("eos_token");
  parts.bos = id_of("bos_token");
  parts.pad = id_of("pad_token");
  set_post_processor(config, parts);
}

}  // namespace weft
