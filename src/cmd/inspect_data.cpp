// cmd/inspect_data.cpp: format, rows, columns and the first row of a data file.
#include "base/error.h"
#include "cmd/inspect.h"
#include "data/rows.h"

namespace weft {

Json inspect_rows(const std::filesystem::path& file) {
  const RowFormat format = row_format(file, "auto");
  const auto rows = open_rows({file.string()}, "auto", "inspect");
  Row row;
  rows->read(0, row);
  Json first(Json::Object{});
  Json::Array columns;
  for (const Row::Column& column : row.columns) {
    columns.push_back(Json(column.name));
    first.set(column.name, column.is_text ? Json(column.text) : Json("(a list or an object)"));
  }
  Json out;
  out.set("kind", format == RowFormat::kText ? "text file" : "JSON lines file");
  out.set("path", file.string());
  out.set("bytes", static_cast<int64_t>(std::filesystem::file_size(file)));
  out.set("rows", rows->size());
  out.set("columns", std::move(columns));
  out.set("first_row", std::move(first));
  return out;
}

}  // namespace weft
