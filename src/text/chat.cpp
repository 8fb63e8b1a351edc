// text/chat.cpp: turns, and where the assistant's part begins in them.
#include "text/chat.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>", kTurnEnd = "<|im_end|>";

const std::string& text_at(const Json& message, const char* key, std::string_view where) {
  const Json* value = message.find(key);
  require(value && value->is_string(), "{}: a message needs \"{}\" as text, got {}", where, key,
          value ? value->kind() : "nothing");
  return value->as_string();
}

// Message keys that no known template writes. In a table, a message without such a key has a null
// value for the key.
void refuse_unwritten(const Json& message, std::string_view where) {
  constexpr const char* kUnwritten[] = {
      "name",      "tool_calls", "function_call", "tools", "tool_call_id", "reasoning_content",
      "reasoning", "thinking",   "refusal",       "audio"};
  for (const char* key : kUnwritten) {
    const Json* value = message.find(key);
    if (!value || value->is_null()) continue;
    if (value->is_array() && value->as_array().empty()) continue;
    if (value->is_string() && value->as_string().empty()) continue;
    throw UserError(
        fmt::format(
            "{}: a message has the key \"{}\", which the supported chat templates do not write",
            where, key),
        "remove the key from the rows, or write its value into \"content\"");
  }
}

// Whether a turn is learned: assistant turns are, unless they have "weight": 0.
bool is_learned(const Json& message, const std::string& role, std::string_view where) {
  const bool is_assistant = role == "assistant";
  const Json* weight = message.find("weight");
  if (!weight || weight->is_null()) return is_assistant;
  const bool is_zero = *weight == Json(0) || *weight == Json(0.0);
  const bool is_one = *weight == Json(1) || *weight == Json(1.0);
  require(is_zero || (is_one && is_assistant),
          "{}: \"weight\" of a turn of role {} is {}, wanted 0, or 1 in a turn of the assistant",
          where, role, weight->dump());
  return is_one;
}

void refuse_sharegpt(const Json& message, std::string_view where) {
  if (message.find("role") || !message.find("from") || !message.find("value")) return;
  throw UserError(
      fmt::format("{}: a message is {{from, value}}, wanted {{role, content}}", where),
      "these rows are in ShareGPT format: write \"from\" as \"role\" (human as user, gpt as "
      "assistant) and \"value\" as \"content\"");
}

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), known_(find_known_template(tokenizer.files())) {
  for (const std::string_view token : {kTurnStart, kTurnEnd}) {
    std::vector<int32_t> ids;
    tokenizer.encode(token, false, ids);
    require(ids.size() == 1 && tokenizer.token_bytes(ids[0]) == token,
            "data.messages: the tokenizer ({}) has no token {}: only ChatML is built",
            tokenizer.describe(), token);
    end_id_ = ids[0];  // of the last of them
  }
}

void ChatTemplate::encode(const Json& messages, std::string_view where, std::vector<int32_t>& ids,
                          std::vector<uint8_t>& is_label) const {
  require(messages.is_array(), "{}: wanted a list of {{role, content}}, got {}", where,
          messages.kind());
  bool is_first = true;
  for (const Json& message : messages.as_array()) {
    require(message.is_object(), "{}: a message is {}, wanted an object", where, message.kind());
    refuse_sharegpt(message, where);
    const std::string& role = text_at(message, "role", where);
    require(role == "system" || role == "user" || role == "assistant",
            "{}: unknown role '{}', wanted system, user or assistant", where, role);
    refuse_unwritten(message, where);
    const std::string& content = text_at(message, "content", where);
    if (is_first && role != "system" && !known_.default_system.empty()) {
      put_turn("system", known_.default_system, false, ids, is_label);
    }
    is_first = false;
    put_turn(role, content, is_learned(message, role, where), ids, is_label);
  }
}

// A turn begins with an added token, so turns can be tokenized one by one with the same ids as the
// whole. The last token of a turn's head may reach into the content (a leading line end): then it
// is a label.
void ChatTemplate::put_turn(std::string_view role, std::string_view content, bool learned,
                            std::vector<int32_t>& ids, std::vector<uint8_t>& is_label) const {
  const std::string head = fmt::format("{}{}\n", kTurnStart, role);
  const size_t begin = ids.size();
  tokenizer_.encode(fmt::format("{}{}{}\n", head, content, kTurnEnd), false, ids);
  is_label.resize(ids.size(), 0);
  if (!learned) return;
  std::vector<int32_t> head_ids, tail_ids;
  tokenizer_.encode(head, false, head_ids);
  tokenizer_.encode("\n", false, tail_ids);
  size_t first = 0;
  while (first < head_ids.size() && ids[begin + first] == head_ids[first]) ++first;
  const size_t end = ids.size() - std::min(tail_ids.size(), ids.size() - begin);
  for (size_t i = begin + first; i < end; ++i) is_label[i] = 1;
}

}  // namespace weft
