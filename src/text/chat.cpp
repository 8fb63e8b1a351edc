// text/chat.cpp: turns, and where the assistant's part begins in them.
#include "text/chat.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>", kTurnEnd = "<|im_end|>";

std::string template_of(const Tokenizer& tokenizer) {
  const auto files = tokenizer.files();
  if (const auto file = files.find("chat_template.jinja"); file != files.end()) return file->second;
  const auto config = files.find("tokenizer_config.json");
  if (config == files.end()) return "";
  const Json json = parse_json(config->second, "tokenizer_config.json");
  const Json* text = json.find("chat_template");
  return text && text->is_string() ? text->as_string() : "";
}

// Some templates add a default system turn: a literal between these two.
std::string default_system_of(std::string_view text) {
  constexpr std::string_view kBefore = "<|im_start|>system\\n";
  for (size_t at = text.find(kBefore); at != std::string_view::npos; at = text.find(kBefore, at)) {
    at += kBefore.size();
    const size_t end = text.find(kTurnEnd, at);
    const std::string_view said = text.substr(at, end == std::string_view::npos ? 0 : end - at);
    if (!said.empty() && said.find_first_of("'\"{}") == std::string_view::npos) {
      return std::string(said);
    }
  }
  return "";
}

const std::string& text_at(const Json& message, const char* key, std::string_view where) {
  const Json* value = message.find(key);
  require(value && value->is_string(), "{}: a message needs \"{}\" as text, got {}", where, key,
          value ? value->kind() : "nothing");
  return value->as_string();
}

void refuse_sharegpt(const Json& message, std::string_view where) {
  if (message.find("role") || !message.find("from") || !message.find("value")) return;
  throw UserError(
      fmt::format("{}: a message is {{from, value}}, wanted {{role, content}}", where),
      "these rows are in ShareGPT format: write \"from\" as \"role\" (human as user, gpt as "
      "assistant) and \"value\" as \"content\"");
}

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const std::string_view token : {kTurnStart, kTurnEnd}) {
    std::vector<int32_t> ids;
    tokenizer.encode(token, false, ids);
    require(ids.size() == 1 && tokenizer.token_bytes(ids[0]) == token,
            "data.messages: the tokenizer ({}) has no token {}: only ChatML is built",
            tokenizer.describe(), token);
    end_id_ = ids[0];  // of the last of them
  }
  const std::string text = template_of(tokenizer);
  require(text.empty() || text.find(kTurnStart) != std::string::npos,
          "data.messages: the tokenizer's chat template is not ChatML: not built");
  default_system_ = default_system_of(text);
  skip_empty_ = text.find("if message['content']") != std::string::npos;
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
    const Json* calls = message.find("tool_calls");
    require(!calls || calls->is_null(), "{}: tool_calls are not built", where);
    const std::string& content = text_at(message, "content", where);
    if (is_first && role != "system" && !default_system_.empty()) {
      put_turn("system", default_system_, ids, is_label);
    }
    is_first = false;
    if (skip_empty_ && role == "assistant" && content.empty()) continue;
    put_turn(role, content, ids, is_label);
  }
}

// A turn begins with an added token, so turns can be tokenized one by one with the same ids as the
// whole. The last token of a turn's head may reach into the content (a leading line end): then it
// is a label.
void ChatTemplate::put_turn(std::string_view role, std::string_view content,
                            std::vector<int32_t>& ids, std::vector<uint8_t>& is_label) const {
  const std::string head = fmt::format("{}{}\n", kTurnStart, role);
  const size_t begin = ids.size();
  tokenizer_.encode(fmt::format("{}{}{}\n", head, content, kTurnEnd), false, ids);
  is_label.resize(ids.size(), 0);
  if (role != "assistant") return;
  std::vector<int32_t> head_ids, tail_ids;
  tokenizer_.encode(head, false, head_ids);
  tokenizer_.encode("\n", false, tail_ids);
  size_t first = 0;
  while (first < head_ids.size() && ids[begin + first] == head_ids[first]) ++first;
  const size_t end = ids.size() - std::min(tail_ids.size(), ids.size() - begin);
  for (size_t i = begin + first; i < end; ++i) is_label[i] = 1;
}

}  // namespace weft
