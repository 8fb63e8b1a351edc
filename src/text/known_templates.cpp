// text/known_templates.cpp: finds the chat template of a folder, and lists the known templates.
//
// tests/interop/chat_interop.py compares each of them with transformers' apply_chat_template.
#include "text/known_templates.h"

#include <fmt/core.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"

namespace weft {

const std::string_view kPlainChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

namespace {

using Files = std::map<std::string, std::string>;

constexpr std::string_view kHelpful = "You are a helpful assistant.";
constexpr std::string_view kQwen =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

// Two texts: a line break in the template's strings is either escaped as \n or literal.
constexpr KnownTemplate kKnownTemplates[] = {
    {"17762d2e5131cb2a950db7dd5700c50095547773d3302b52baebe9ae32257a55", "ChatML", ""},
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "TRL's ChatML", ""},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "TRL's ChatML", ""},
    {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", "Qwen2", kHelpful},
    {"f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", "Qwen2", kHelpful},
    {"4039eed0f28b7aaa337e70c76cfedba3271ee32505835a095a8c92e536b3c355", "Qwen2.5", kHelpful},
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "Qwen2.5 Instruct", kQwen},
    {"64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", "Qwen3-Instruct-2507", ""},
};

struct FoundTemplate {
  std::string file, text;
};

// A list of {name, template} objects; transformers uses "default" for rows without tools.
std::string text_of(const Json& json, const std::string& file) {
  if (json.is_string()) return json.as_string();
  require(json.is_array(), "{}: chat_template: wanted text or a list of templates, got {}", file,
          json.kind());
  for (const Json& entry : json.as_array()) {
    const Json *name = entry.find("name"), *text = entry.find("template");
    if (name && *name == Json("default") && text && text->is_string()) return text->as_string();
  }
  throw UserError(
      fmt::format("{}: chat_template: the list has no template named \"default\"", file),
      "rename the template for conversations without tools to \"default\"");
}

// Processors of image models read chat_template.json.
std::optional<FoundTemplate> find_template(const Files& files) {
  if (const auto file = files.find(kTemplateFile); file != files.end())
    return FoundTemplate{kTemplateFile, file->second};
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    const Json json = parse_json(file->second, name);
    const Json* text = json.find("chat_template");
    if (text && !text->is_null()) return FoundTemplate{name, text_of(*text, name)};
  }
  return std::nullopt;
}

std::string hash_of_template(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);  // Jinja ignores a final line break
  std::string hex;
  for (const uint8_t byte : sha256(text)) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

bool has_chat_template(const Files& files) { return find_template(files).has_value(); }

const KnownTemplate& find_known_template(const Files& files) {
  const std::optional<FoundTemplate> found = find_template(files);
  if (!found) return kKnownTemplates[0];
  const std::string hash = hash_of_template(found->text);
  for (const KnownTemplate& known : kKnownTemplates) {
    if (known.sha256 == hash) return known;
  }
  throw UserError(
      fmt::format("data.messages: the chat template of {} (sha256 {}) is not supported; supported: "
                  "ChatML (plain, TRL's), Qwen2, Qwen2.5, Qwen3-Instruct-2507",
                  found->file, hash),
      "render the conversations yourself, as the model will be served, and set data.text, or "
      "data.source and data.target, to templates over their columns");
}

}  // namespace weft
