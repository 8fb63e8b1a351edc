// io/glob.cpp: glob(3), or a recursive walk where the pattern has a **.
#include "io/glob.h"

#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/path.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using PathParts = std::vector<std::string>;

PathParts path_parts(std::string_view path) {
  PathParts parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool parts_match(const PathParts& pattern, size_t p, const PathParts& path, size_t at) {
  if (p == pattern.size()) return at == path.size();
  if (pattern[p] == "**") {
    for (;; ++at) {
      if (parts_match(pattern, p + 1, path, at)) return true;
      if (at == path.size() || path[at].starts_with('.')) return false;
    }
  }
  return at < path.size() && ::fnmatch(pattern[p].c_str(), path[at].c_str(), FNM_PERIOD) == 0 &&
         parts_match(pattern, p + 1, path, at + 1);
}

// The folders above the current one, to detect loops of symbolic links.
class FolderWalk {
 public:
  explicit FolderWalk(std::vector<std::string>* files) : files_(files) {}

  void visit(const fs::path& folder) {
    struct stat info {};
    const fs::path opened = folder.empty() ? "." : folder;
    if (::stat(opened.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return;
    const std::pair id(info.st_dev, info.st_ino);
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) return;
    above_.push_back(id);
    for (const std::string& name : folder_names(opened)) {
      if (name.starts_with('.')) continue;
      std::error_code none;
      const fs::path path = folder / name;
      if (fs::is_directory(path, none)) {
        visit(path);
      } else if (fs::is_regular_file(path, none)) {
        files_->push_back(path.string());
      }
    }
    above_.pop_back();
  }

 private:
  std::vector<std::string>* files_;
  std::vector<std::pair<dev_t, ino_t>> above_;
};

std::vector<std::string> plain_matches(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::error_code none;
    if (fs::is_regular_file(found.gl_pathv[i], none)) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  return paths;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view path) {
  return parts_match(path_parts(pattern), 0, path_parts(path), 0);
}

std::vector<std::string> glob_files(const std::string& pattern) {
  const PathParts parts = path_parts(pattern);
  if (std::find(parts.begin(), parts.end(), "**") == parts.end()) return plain_matches(pattern);
  const size_t slash = pattern.rfind('/', pattern.find_first_of("*?["));
  std::vector<std::string> paths;
  FolderWalk(&paths).visit(slash == std::string::npos ? "" : pattern.substr(0, slash + 1));
  std::erase_if(paths, [&](const std::string& path) { return !glob_matches(pattern, path); });
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace weft
