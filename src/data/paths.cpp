// data/paths.cpp: expands the entries of a data option to files.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/found_files.h"
#include "data/rows.h"
#include "io/glob.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

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

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code bad;
  fs::recursive_directory_iterator at(folder, bad), end;
  for (; !bad && at != end; at.increment(bad)) {
    std::error_code none;
    if (at->is_directory(none) && at->path().filename().string().starts_with('.'))
      at.disable_recursion_pending();
    if (at->is_regular_file(none)) paths.push_back(at->path().string());
  }
  require(!bad, "data: cannot list the folder {}: {}", folder.string(), bad.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The path up to the last slash before the first wildcard.
std::string fixed_part(const std::string& pattern) {
  const size_t slash = pattern.rfind('/', pattern.find_first_of("*?["));
  return slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
}

FoundFiles files_at_uri(const std::string& uri, Search search) {
  std::vector<std::string> paths;
  for (const FileInfo& file : list_uri(uri)) paths.push_back(file.path);
  if (paths.size() == 1 && paths[0] == uri) return {paths, {}};
  search.is_pattern = uri.find('*') != std::string::npos;
  const std::string path = uri.substr(0, uri.find('?'));
  search.root = search.is_pattern ? fixed_part(path) : path + (path.ends_with('/') ? "" : "/");
  return choose_files(search, paths);
}

FoundFiles expand(const std::string& path, Search search) {
  if (is_hf_dataset(path)) return expand(resolve_hf_dataset(path), search);
  search.place = path;
  if (is_uri(path)) return files_at_uri(path, search);
  std::error_code none;
  if (fs::is_directory(path, none)) {
    if (auto saved = saved_data_set(path); !saved.empty()) return {std::move(saved), {}};
    search.root = path + (path.ends_with('/') ? "" : "/");
    return choose_files(search, files_below(path));
  }
  if (fs::exists(path, none)) return {{path}, {}};
  if (path.find_first_of("*?[") != std::string::npos) {
    search.is_pattern = true;
    search.root = fixed_part(path);
    return choose_files(search, glob_files(path));
  }
  std::error_code ignored;
  throw UserError(fmt::format("data: there is no file {}", path),
                  fs::path(path).is_absolute()
                      ? "see data.train and data.eval"
                      : fmt::format("see data.train and data.eval; their paths begin in {}",
                                    fs::current_path(ignored).string()));
}

}  // namespace

FoundFiles expand_paths(const std::vector<std::string>& paths, std::string_view what,
                        std::string_view format) {
  Search search;
  search.what = what;
  search.format = format;
  FoundFiles files;
  for (const std::string& path : paths) {
    FoundFiles found = expand(path, search);
    files.paths.insert(files.paths.end(), found.paths.begin(), found.paths.end());
    files.left_out.insert(files.left_out.end(), found.left_out.begin(), found.left_out.end());
  }
  return files;
}

}  // namespace weft
