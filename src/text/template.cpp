// text/template.cpp: a template is parsed once into literals and columns, then only filled in.
#include "text/template.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

[[noreturn]] void refuse(std::string_view what, std::string_view text, size_t at,
                         std::string_view why) {
  throw UserError(fmt::format("{}: {} at character {} of \"{}\"", what, why, at, text),
                  "a column is written {name}, a brace {{ or }}");
}

}  // namespace

TextTemplate::TextTemplate(std::string_view text, std::string_view what) : what_(what) {
  std::string literal;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    const bool doubled = at + 1 < text.size() && text[at + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      literal.push_back(c);
      at += 2;
    } else if (c == '}') {
      refuse(what, text, at, "} without {");
    } else if (c == '{') {
      const size_t close = text.find_first_of("{}", at + 1);
      if (close == std::string_view::npos || text[close] == '{')
        refuse(what, text, at, "{ that is not closed");
      const std::string name(text.substr(at + 1, close - at - 1));
      if (name.empty()) refuse(what, text, at, "{} without a column name");
      const auto found = std::find(columns_.begin(), columns_.end(), name);
      parts_.push_back({std::move(literal), static_cast<int>(found - columns_.begin())});
      if (found == columns_.end()) columns_.push_back(name);
      literal.clear();
      at = close + 1;
    } else {
      literal.push_back(c);
      at++;
    }
  }
  parts_.push_back({std::move(literal), -1});
}

void TextTemplate::check_columns(std::span<const std::string> available) const {
  for (const std::string& name : columns_) {
    if (std::find(available.begin(), available.end(), name) != available.end()) continue;
    throw UserError(fmt::format("{}: there is no column '{}'; there are: {}", what_, name,
                                fmt::join(available, ", ")),
                    "a literal brace is written {{ or }}");
  }
}

std::string TextTemplate::render(const Lookup& column) const {
  std::string out;
  for (const Part& part : parts_) {
    out += part.literal;
    if (part.column < 0) continue;
    const std::string& name = columns_[static_cast<size_t>(part.column)];
    const std::optional<std::string_view> value = column(name);
    require(value.has_value(), "{}: there is no column '{}'", what_, name);
    out += *value;
  }
  return out;
}

}  // namespace weft
