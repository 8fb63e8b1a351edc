// data/paths.cpp: which files a data option names, and what is in them by their extension.
#include <glob.h>

#include <algorithm>

#include "base/error.h"
#include "data/rows.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string extension(const fs::path& path) {
  std::string ext = path.extension().string();
  std::transform(ext.begin(), ext.end(), ext.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ext;
}

bool is_json_lines(std::string_view ext) { return is_one_of(ext, {".jsonl", ".ndjson", ".json"}); }

bool is_not_built(std::string_view ext) {
  return is_one_of(ext, {".csv", ".tsv", ".parquet", ".arrow", ".feather", ".idx", ".gz", ".zst",
                         ".bz2", ".xz", ".zip"});
}

std::vector<fs::path> matches_of(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> paths;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::error_code none;
    if (fs::is_regular_file(found.gl_pathv[i], none)) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  require(!paths.empty(), "data: no file matches {}", pattern);
  return paths;
}

// Hidden files and files that are clearly no data (a README beside it) are left out.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code bad;
  fs::recursive_directory_iterator at(folder, bad), end;
  for (; !bad && at != end; at.increment(bad)) {
    const std::string ext = extension(at->path());
    const bool is_data =
        is_json_lines(ext) || is_not_built(ext) || is_one_of(ext, {".txt", ".text", ".raw"});
    std::error_code none;
    if (is_data && at->is_regular_file(none) && !at->path().filename().string().starts_with('.')) {
      paths.push_back(at->path());
    }
  }
  require(!bad, "data: cannot list the folder {}: {}", folder.string(), bad.message());
  require(!paths.empty(), "data: the folder {} has no .txt, .text, .raw, .jsonl or .json file",
          folder.string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

RowFormat row_format(const fs::path& path, std::string_view format) {
  if (format == "text") return RowFormat::kText;
  if (format == "jsonl") return RowFormat::kJsonLines;
  if (format != "auto") {
    throw UserError(fmt::format("data.format: {} is not built", format),
                    "this build reads text and jsonl");
  }
  const std::string ext = extension(path);
  if (is_json_lines(ext)) return RowFormat::kJsonLines;
  if (is_not_built(ext)) {
    throw UserError(fmt::format("{}: reading {} files is not built", path.string(), ext),
                    "this build reads text and JSON-lines files; write the rows as .jsonl");
  }
  return RowFormat::kText;
}

std::vector<fs::path> expand_paths(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    require(path.find("://") == std::string::npos, "data: {} is not a local file: not built", path);
    std::vector<fs::path> found;
    std::error_code none;
    if (fs::is_directory(path, none)) {
      found = files_below(path);
    } else if (fs::exists(path, none)) {
      found = {path};
    } else if (path.find_first_of("*?[") != std::string::npos) {
      found = matches_of(path);
    } else {
      throw UserError(fmt::format("data: there is no file {}", path));
    }
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace weft
