// data/column_hint.cpp: finds chat columns by their usual names; else suggests a template.
#include "data/column_hint.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/suggest.h"

namespace weft {
namespace {

// Names under which datasets store conversations.
constexpr const char* kChatColumns[] = {"messages", "conversations", "conversation", "chat",
                                        "dialog"};

}  // namespace

std::string column_hint(const DataConfig& c, const std::string& missing,
                        const std::vector<std::string>& names) {
  const auto is_there = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* chat : kChatColumns) {
    if (is_there(chat) && c.messages != chat)
      return fmt::format("chat rows: set data.messages: {}", chat);
  }
  if (const auto close = nearest(missing, names))
    return fmt::format("did you mean '{}'? See {}", *close,
                       !c.messages.empty() ? "data.messages"
                       : c.target.empty()  ? "data.text"
                                           : "data.source and data.target");
  const std::string text = fmt::format(
      "data.text, or data.source and data.target, to templates over these columns, as in "
      "data.text: \"{{{}}}\"",
      names.empty() || is_there("text") ? "text" : names[0]);
  if (c.messages.empty()) return "set " + text;
  return "set data.messages to the column that holds the conversation; for plain text leave it "
         "unset, and set " +
         text;
}

std::vector<std::string> template_warnings(const DataConfig& c) {
  std::vector<std::string> lines;
  const std::pair<const char*, const std::string*> templates[] = {
      {"data.text", &c.text}, {"data.source", &c.source}, {"data.target", &c.target}};
  for (const auto& [key, text] : templates) {
    for (const char* written : {"\\n", "\\t"}) {
      if (text->find(written) == std::string::npos) continue;
      lines.push_back(
          fmt::format("{}: {} is a backslash and a letter here, not a line break or a tab; put the "
                      "template in double quotes in the run file",
                      key, written));
    }
  }
  return lines;
}

}  // namespace weft
