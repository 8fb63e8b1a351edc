// text/template.h: text made from the columns of a row: "Q: {question}\nA: {answer}".
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// {name} stands for a column, {{ and }} for a brace. Nothing else is special.
class TextTemplate {
 public:
  // `what` names the template in errors (data.text). UserError where a brace is not closed, is
  // closed without being open, or holds no name.
  TextTemplate(std::string_view text, std::string_view what);

  const std::vector<std::string>& columns() const { return columns_; }  // in order, each once

  // UserError naming the missing column and the existing ones.
  void check_columns(std::span<const std::string> available) const;

  // column(name) returns the value, or none where there is no such column (UserError).
  using Lookup = std::function<std::optional<std::string_view>(std::string_view name)>;
  std::string render(const Lookup& column) const;

 private:
  struct Part {
    std::string literal;  // precedes the column
    int column;           // index into columns_; -1: none follows
  };
  std::string what_;
  std::vector<Part> parts_;
  std::vector<std::string> columns_;
};

}  // namespace weft
