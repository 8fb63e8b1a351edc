// data/splits.cpp: finds split keywords in paths.
#include "data/splits.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr std::pair<std::string_view, unsigned> kSplitWords[] = {
    {"train", 1}, {"training", 1}, {"validation", 2}, {"valid", 2},      {"dev", 2},
    {"val", 2},   {"test", 4},     {"testing", 4},    {"evaluation", 4}, {"eval", 4}};

// Non-ASCII bytes count as letters.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}

unsigned splits_in(std::string_view text) {
  unsigned found = 0;
  for (size_t at = 0; at < text.size();) {
    if (!is_letter(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && is_letter(text[end])) ++end;
    for (const auto& [word, bit] : kSplitWords) {
      if (text.substr(at, end - at) == word) found |= bit;
    }
    at = end;
  }
  return found;
}

}  // namespace

std::vector<unsigned> splits_of(const std::vector<std::string>& paths) {
  std::vector<unsigned> by_folder, by_name;
  for (const std::string& path : paths) {
    const size_t slash = path.rfind('/');
    const size_t name = slash == std::string::npos ? 0 : slash + 1;
    by_folder.push_back(splits_in(std::string_view(path).substr(0, name)));
    by_name.push_back(splits_in(std::string_view(path).substr(name)));
  }
  const bool is_named =
      std::any_of(by_folder.begin(), by_folder.end(), [](unsigned split) { return split != 0; });
  return is_named ? by_folder : by_name;
}

}  // namespace weft
