// cmd/inspect_data.cpp: format, rows, columns and the first rows of a data set.
#include "base/error.h"
#include "cmd/inspect.h"
#include "data/rows.h"

namespace weft {
namespace {

// Text as text; a null as null; a nested value as what it is.
Json shown(const Row& row) {
  Json out(Json::Object{});
  for (const Row::Column& column : row.columns) {
    if (column.kind == Row::Kind::kText) {
      out.set(column.name, Json(column.text));
    } else {
      out.set(column.name, column.kind == Row::Kind::kNull ? Json()
                                                           : parse_json(column.text, column.name));
    }
  }
  return out;
}

Json names_of(const std::vector<std::string>& names) {
  Json::Array list;
  for (const std::string& name : names) list.push_back(Json(name));
  return list;
}

}  // namespace

Json inspect_rows(const std::string& path, const InspectRows& options) {
  const auto rows = open_rows({path}, "auto", "inspect");
  const std::vector<FileInfo> files = rows->files();
  int64_t bytes = 0;
  for (const FileInfo& file : files) bytes += file.size;
  Row row;
  rows->read(0, row);
  Json out;
  out.set("kind", fmt::format("{} file", format_name(row_format(files[0].path, "auto"))));
  out.set("path", path);
  if (files.size() > 1) out.set("files", uint64_t{files.size()});
  out.set("bytes", bytes);
  out.set("rows", rows->size());
  out.set("columns", names_of(rows->column_names()));
  out.set("first_row", shown(row));
  if (options.num_rows > 0) {
    Json::Array sample;
    const auto scan = rows->scan(0);
    for (int64_t i = 0; i < options.num_rows && scan->next(row); ++i) sample.push_back(shown(row));
    out.set("sample", std::move(sample));
  }
  return out;
}

}  // namespace weft
