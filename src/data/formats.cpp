// data/formats.cpp: the table of formats and their extensions.
#include "data/formats.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace weft {
namespace {

struct Known {
  RowFormat format;
  std::string_view name;
  std::vector<std::string_view> extensions;
};

const std::vector<Known>& known_formats() {
  static const std::vector<Known> known = {
      {RowFormat::kText, "text", {".txt", ".text", ".raw"}},
      {RowFormat::kJsonLines, "jsonl", {".jsonl", ".ndjson", ".json"}},
      {RowFormat::kCsv, "csv", {".csv"}},
      {RowFormat::kTsv, "tsv", {".tsv"}},
      {RowFormat::kParquet, "parquet", {".parquet", ".pq"}},
      {RowFormat::kArrow, "arrow", {".arrow", ".feather"}},
  };
  return known;
}

// The name in lower case, without a compression suffix or a URI query.
std::string extension(std::string path) {
  if (is_uri(path)) path = path.substr(0, path.find('?'));
  if (is_packed(path)) path = std::filesystem::path(path).replace_extension().string();
  std::string ext = std::filesystem::path(path).extension().string();
  std::transform(ext.begin(), ext.end(), ext.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ext;
}

const Known* find_known(const std::string& path) {
  const std::string ext = extension(path);
  for (const Known& k : known_formats()) {
    if (std::find(k.extensions.begin(), k.extensions.end(), ext) != k.extensions.end()) return &k;
  }
  return nullptr;
}

}  // namespace

std::optional<RowFormat> known_format(const std::string& path) {
  const Known* k = find_known(path);
  return k ? std::optional(k->format) : std::nullopt;
}

std::string_view format_name(RowFormat format) {
  for (const Known& k : known_formats()) {
    if (k.format == format) return k.name;
  }
  return "";
}

RowFormat row_format(const std::string& path, std::string_view format) {
  if (format == "auto") {
    if (const Known* k = find_known(path)) return k->format;
    const std::string ext = extension(path);
    constexpr std::string_view kRefused[] = {".idx", ".bz2", ".xz", ".zip", ".bin", ".npy", ".pkl"};
    if (std::find(std::begin(kRefused), std::end(kRefused), ext) != std::end(kRefused)) {
      throw UserError(fmt::format("{}: reading {} files is not built", path, ext),
                      "this build reads text, JSON lines, CSV, Parquet and Arrow files, the first "
                      "three also as .gz and .zst");
    }
    return RowFormat::kText;
  }
  for (const Known& k : known_formats()) {
    // data.format: csv with a .tsv file means tabs.
    if (k.name == format) {
      return k.format == RowFormat::kCsv && extension(path) == ".tsv" ? RowFormat::kTsv : k.format;
    }
  }
  throw UserError(fmt::format("data.format: {} is not built", format),
                  "this build reads text, jsonl, csv, parquet and arrow");
}

bool is_table_file(const std::string& path) {
  const Known* k = find_known(path);
  return k && (k->format == RowFormat::kParquet || k->format == RowFormat::kArrow);
}

std::string header_remark(const RowSource& rows, int64_t i, std::string_view format) {
  const std::string where = rows.where(i);
  const RowFormat found = row_format(where.substr(0, where.rfind(':')), format);
  const bool is_csv = found == RowFormat::kCsv || found == RowFormat::kTsv;
  return is_csv ? " (the first line names the columns of a CSV file)" : "";
}

}  // namespace weft
