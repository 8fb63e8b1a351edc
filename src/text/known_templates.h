// text/known_templates.h: the chat templates that are reproduced exactly, by the hash of their
// text.
//
// There is no interpreter of templates: a template is either one of these, or refused. All of them
// write ChatML; they differ in the system turn that some put before a conversation without one.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace weft {

struct KnownTemplate {
  std::string_view sha256;  // of the text without a line end at its end, in hexadecimal
  std::string_view name;
  std::string_view
      default_system;  // written where the first turn is not a system turn; empty: none
};

// What a folder without a template gets: plain ChatML, as a text for transformers.
extern const std::string_view kPlainChatMl;
constexpr const char* kTemplateFile = "chat_template.jinja";

// The template that transformers would use with these tokenizer files. None at all: kPlainChatMl.
// UserError naming the file where the template is not a known one.
const KnownTemplate& find_known_template(const std::map<std::string, std::string>& files);
bool has_chat_template(const std::map<std::string, std::string>& files);

}  // namespace weft
