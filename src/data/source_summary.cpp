// data/source_summary.cpp: names, counts and sizes of a source's files.
#include "data/source_summary.h"

#include <fmt/core.h>

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kMostNames = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string> paths_of(const RowSource& rows) {
  std::vector<std::string> paths;
  for (const FileInfo& file : rows.files()) paths.push_back(file.path);
  return paths;
}

}  // namespace

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3 && is_digit(text[at - 4]); at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string common_pattern(const std::vector<std::string>& paths) {
  if (paths.empty()) return "";
  const std::string& first = paths.front();
  size_t begin = first.size(), end = first.size();  // lengths of the common beginning and end
  for (const std::string& path : paths) {
    const size_t most = std::min(first.size(), path.size());
    begin = std::min(begin, most);
    for (size_t i = 0; i < begin; ++i) {
      if (path[i] != first[i]) begin = i;
    }
    end = std::min(end, most);
    for (size_t i = 0; i < end; ++i) {
      if (path[path.size() - 1 - i] != first[first.size() - 1 - i]) end = i;
    }
  }
  if (begin == first.size()) return first;
  while (begin > 0 && is_digit(first[begin - 1])) --begin;
  const std::string tail = first.substr(std::max(begin, first.size() - end));
  const size_t ending = std::min(tail.find('.'), tail.size());
  return first.substr(0, begin) + "*" + tail.substr(ending);
}

std::string describe_source(std::string_view name, const RowSource& rows, int64_t taken) {
  const std::vector<std::string> paths = paths_of(rows);
  std::string used;
  if (taken < rows.size()) used = fmt::format(", the first {} of them used", with_commas(taken));
  if (const int64_t blank = rows.num_blank(); blank > 0)
    used += fmt::format(", {} lines with only blank fields skipped", with_commas(blank));
  return fmt::format("{} {} file{}, {} rows{}: {}", name, with_commas(std::ssize(paths)),
                     paths.size() == 1 ? "" : "s", with_commas(rows.size()), used,
                     common_pattern(paths));
}

Json source_to_json(const RowSource& rows, int64_t taken) {
  int64_t bytes = 0;
  for (const FileInfo& file : rows.files()) bytes += file.size;
  Json::Array names;
  for (const std::string& path : paths_of(rows)) {
    if (names.size() < kMostNames) names.push_back(Json(path));
  }
  Json out;
  out.set("files", Json(std::ssize(rows.files())));
  out.set("rows", Json(rows.size()));
  out.set("rows_used", Json(taken));
  out.set("blank_lines", Json(rows.num_blank()));
  out.set("bytes", Json(bytes));
  out.set("names", Json(std::move(names)));
  return out;
}

}  // namespace weft
