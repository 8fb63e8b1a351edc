// data/paths.cpp: which files a data option names, and their formats by extension.
#include <glob.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/rows.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

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

// Lower case, without the compression suffix and a URI's query.
std::string extension(std::string path) {
  if (is_uri(path)) path = path.substr(0, path.find('?'));
  if (is_packed(path)) path = fs::path(path).replace_extension().string();
  std::string ext = fs::path(path).extension().string();
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

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::error_code none;
    if (fs::is_regular_file(found.gl_pathv[i], none)) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  require(!paths.empty(), "data: no file matches {}", pattern);
  return paths;
}

// A dataset saved by the Hugging Face package: state.json lists its Arrow files. Empty where the
// folder is not one.
std::vector<std::string> saved_data_set(const fs::path& folder) {
  if (fs::exists(folder / "dataset_dict.json")) {
    const Json dict = parse_json(read_file(folder / "dataset_dict.json", 1 << 20), folder.string());
    std::string first = "train";
    if (const Json* names = dict.find("splits"); names && !names->as_array().empty()) {
      first = names->as_array()[0].as_string();
    }
    throw UserError(fmt::format("data: {} holds several splits of a dataset", folder.string()),
                    fmt::format("name one of them: {}", (folder / first).string()));
  }
  if (!fs::exists(folder / "state.json") || !fs::exists(folder / "dataset_info.json")) return {};
  const std::string what = (folder / "state.json").string();
  const Json state = parse_json(read_file(what, 1 << 24), what);
  const Json* indices = state.find("_indices_files");
  require(!indices || indices->is_null() || indices->as_array().empty(),
          "{}: the dataset was saved with a list of indices, which is not supported", what);
  std::vector<std::string> paths;
  for (const Json& file : state.at("_data_files").as_array()) {
    const std::string& name = file.at("filename").as_string();
    require(name.find('/') == std::string::npos, "{}: the file {} is not in this folder", what,
            name);
    paths.push_back((folder / name).string());
  }
  return paths;
}

// Skips hidden files and files that are clearly not data (a README).
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> paths = saved_data_set(folder);
  if (!paths.empty()) return paths;
  std::error_code bad;
  fs::recursive_directory_iterator at(folder, bad), end;
  for (; !bad && at != end; at.increment(bad)) {
    std::error_code none;
    const bool hidden = at->path().filename().string().starts_with('.');
    if (!hidden && at->is_regular_file(none) && find_known(at->path().string())) {
      paths.push_back(at->path().string());
    }
  }
  require(!bad, "data: cannot list the folder {}: {}", folder.string(), bad.message());
  require(!paths.empty(),
          "data: the folder {} has no .txt, .jsonl, .csv, .parquet or .arrow file (nor another "
          "supported one)",
          folder.string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> files_at_uri(const std::string& uri) {
  std::vector<std::string> paths;
  const std::vector<FileInfo> found = list_uri(uri);
  const bool is_one = found.size() == 1 && found[0].path == uri;
  for (const FileInfo& file : found) {
    if (is_one || find_known(file.path)) paths.push_back(file.path);
  }
  require(!paths.empty(), "data: no file of a supported kind at {}", uri);
  return paths;
}

std::vector<std::string> expand(const std::string& path) {
  if (is_hf_dataset(path)) return expand(resolve_hf_dataset(path));
  if (is_uri(path)) return files_at_uri(path);
  std::error_code none;
  if (fs::is_directory(path, none)) return files_below(path);
  if (fs::exists(path, none)) return {path};
  if (path.find_first_of("*?[") != std::string::npos) return matches_of(path);
  std::error_code ignored;
  throw UserError(fmt::format("data: there is no file {}", path),
                  fs::path(path).is_absolute()
                      ? "see data.train and data.eval"
                      : fmt::format("see data.train and data.eval; their paths begin in {}",
                                    fs::current_path(ignored).string()));
}

}  // namespace

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

std::vector<std::string> expand_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const std::vector<std::string> found = expand(path);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace weft
