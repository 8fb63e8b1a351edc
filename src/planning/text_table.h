// planning/text_table.h: a table of a report, as text in columns.
#pragma once

#include <string>
#include <vector>

namespace weft {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    const char* title;
    size_t width;  // a wider cell moves those after it
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns);  // begins with a line of their titles
  void add(const std::vector<std::string>& cells);  // one per column
  const std::string& text() const { return text_; }

 private:
  const std::vector<Column> columns_;
  std::string text_;
};

}  // namespace weft
