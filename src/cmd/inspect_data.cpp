// cmd/inspect_data.cpp: format, rows, columns and the first row of a data file.
#include "base/error.h"
#include "cmd/inspect.h"
#include "data/rows.h"

namespace weft {

Json inspect_rows(const std::filesystem::path& file) {
  const RowFormat format = row_format(file.string(), "auto");
  const auto rows = open_rows({file.string()}, "auto", "inspect");
  Row row;
  rows->read(0, row);
  Json first(Json::Object{});
  Json::Array columns;
  for (const Row::Column& column : row.columns) {
    columns.push_back(Json(column.name));
    first.set(column.name, Json(column.text));
  }
  Json out;
  out.set("kind", fmt::format("{} file", format_name(format)));
  out.set("path", file.string());
  out.set("bytes", rows->files().at(0).size);
  out.set("rows", rows->size());
  out.set("columns", std::move(columns));
  out.set("first_row", std::move(first));
  return out;
}

}  // namespace weft
