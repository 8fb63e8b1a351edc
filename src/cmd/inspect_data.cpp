// cmd/inspect_data.cpp: format, rows, columns and the first rows of a dataset.
#include <algorithm>

#include "base/error.h"
#include "cmd/inspect.h"
#include "cmd/labeled_text.h"
#include "cmd/text_input.h"
#include "data/token_cache.h"

namespace weft {
namespace {

// Text as a string; null as null; a nested value as JSON.
Json shown_row(const Row& row) {
  Json out(Json::Object{});
  for (const Row::Column& column : row.columns) {
    if (column.kind == Row::Kind::kText) {
      out.set(column.name, Json(column.text));
    } else {
      out.set(column.name,
              column.kind == Row::Kind::kNull ? Json() : parse_json(column.text, column.name));
    }
  }
  return out;
}

Json names_of(const std::vector<std::string>& names) {
  Json::Array list;
  for (const std::string& name : names) list.push_back(Json(name));
  return list;
}

// A histogram of row lengths in tokens: each bucket covers twice the length of the one before.
Json histogram(const std::vector<int64_t>& lengths) {
  Json out(Json::Object{});
  for (int64_t low = 0, high = 16; low < 1 << 21; low = high, high *= 2) {
    const auto count = std::count_if(lengths.begin(), lengths.end(),
                                     [&](int64_t n) { return n >= low && n < high; });
    if (count > 0) out.set(fmt::format("{} to {}", low, high - 1), static_cast<int64_t>(count));
  }
  return out;
}

Json token_statistics(const RowSource& rows, const InspectRows& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const ExampleMaker maker(options.data, *tokenizer, INT64_MAX);
  TokenCache cache(rows, maker, rows.size(), {});
  std::vector<int64_t> lengths;
  int64_t tokens = 0, dropped = 0, cut = 0, nulls = 0;
  CachedRow row;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t n = cache.read_length(i, row);
    dropped += row.dropped;
    cut += row.truncated;
    nulls += row.num_nulls;
    tokens += n;
    if (!row.dropped) lengths.push_back(n);
  }
  std::sort(lengths.begin(), lengths.end());
  const auto at = [&](double part) {
    return lengths.empty()
               ? 0
               : lengths[static_cast<size_t>(part * static_cast<double>(lengths.size() - 1))];
  };
  Json out;
  out.set("tokenizer", tokenizer->describe());
  out.set("tokens", tokens);
  out.set("rows_dropped", dropped);
  out.set("rows_cut", cut);
  out.set("null_cells", nulls);
  out.set("median_length", at(0.5));
  out.set("longest", at(1));
  out.set("lengths", histogram(lengths));
  for (int64_t i = 0; i < rows.size(); ++i) {
    cache.read(i, row);
    if (row.dropped) continue;
    out.set("first_example",
            labeled_text(*tokenizer, row.ids, [&row](size_t t) { return row.is_label[t] != 0; }));
    break;
  }
  return out;
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
  out.set("first_row", shown_row(row));
  if (options.num_rows > 0) {
    Json::Array sample;
    const auto scan = rows->scan(0);
    for (int64_t i = 0; i < options.num_rows && scan->next(row); ++i)
      sample.push_back(shown_row(row));
    out.set("sample", std::move(sample));
  }
  if (!options.tokenizer.empty()) out.set("tokens", token_statistics(*rows, options));
  return out;
}

}  // namespace weft
