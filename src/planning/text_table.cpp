// planning/text_table.cpp: two spaces before a line, one between cells.
#include "planning/text_table.h"

#include <fmt/core.h>

#include "base/error.h"

namespace weft {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  add(titles);
}

void TextTable::add(const std::vector<std::string>& cells) {
  ensure(cells.size() == columns_.size(), "a line of a table needs a cell per column");
  text_ += ' ';
  for (size_t i = 0; i < cells.size(); ++i) {
    const Column& column = columns_[i];
    text_ += column.align == Align::kLeft ? fmt::format(" {:<{}}", cells[i], column.width)
                                          : fmt::format(" {:>{}}", cells[i], column.width);
  }
  text_ += '\n';
}

}  // namespace weft
