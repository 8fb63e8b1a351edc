// cmd/inspect_data.cpp: rows of a text or JSON-lines file, and the columns of the first ones.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "cmd/inspect.h"

namespace weft {
namespace {

constexpr int64_t kRowsLookedAt = 100;  // for columns

void note_columns(std::string_view line, const std::string& what, Json& columns) {
  const Json row = parse_json(line, what);
  require(row.is_object(), "{} holds {}, wanted an object a line", what, row.kind());
  for (const auto& [key, value] : row.as_object()) {
    if (!columns.find(key)) columns.set(key, value.kind());
  }
}

}  // namespace

Json inspect_data(const std::filesystem::path& file) {
  const std::string kind = file.extension().string();
  if (kind != ".jsonl" && kind != ".txt") {
    throw UserError(fmt::format("cannot tell what {} holds", file.string()),
                    "known: folders, .safetensors, .jsonl, .txt");
  }
  const MappedFile map(file);
  std::string_view rest = map.text();
  int64_t rows = 0;
  Json columns(Json::Object{});
  if (kind == ".txt") columns.set("text", "string");
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    ++rows;
    if (kind == ".jsonl" && rows <= kRowsLookedAt) {
      note_columns(rest.substr(0, end), fmt::format("{} line {}", file.string(), rows), columns);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  Json out;
  out.set("kind", kind == ".txt" ? "text file" : "JSON lines file");
  out.set("path", file.string());
  out.set("bytes", uint64_t{map.size()});
  out.set("rows", rows);
  out.set("columns", std::move(columns));
  return out;
}

}  // namespace weft
