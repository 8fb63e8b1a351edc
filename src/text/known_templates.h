// text/known_templates.h: the chat templates that are reproduced exactly, identified by the hash of
// their text.
//
// There is no template interpreter: a template that is not in this list is refused. All of them
// write ChatML. Some insert a default system turn before a conversation without a system turn.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace weft {

struct KnownTemplate {
  std::string_view sha256;  // of the text without its final line break, in hexadecimal
  std::string_view name;
  std::string_view
      default_system;  // written where the first turn is not a system turn; empty: none
};

// The template for a folder that has none: plain ChatML, as text for transformers.
extern const std::string_view kPlainChatMl;
constexpr const char* kTemplateFile = "chat_template.jinja";

// The template that transformers would use with these tokenizer files; kPlainChatMl if none.
// UserError naming the file where the template is not a known one.
const KnownTemplate& find_known_template(const std::map<std::string, std::string>& files);
bool has_chat_template(const std::map<std::string, std::string>& files);

}  // namespace weft
