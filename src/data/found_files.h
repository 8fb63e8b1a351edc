// data/found_files.h: selects the data files of a folder or of a pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct LeftOut {
  std::string path;
  std::string reason;  // "not a data file", "split test", ...
};

struct FoundFiles {
  std::vector<std::string> paths;
  std::vector<LeftOut> left_out;
};

struct Search {
  std::string place;        // the folder or pattern, as given
  std::string root;         // path prefix that the rules ignore, with a trailing slash
  bool is_pattern = false;  // accepts files of any split and extension
  std::string_view what;    // the option, which selects the split
  std::string_view format;  // data.format
};

// Takes the data files of one split and one format from `paths`, in their order. UserError where
// none is left, where they have several formats, where one is there twice (also packed), or where
// it is not clear which split is meant.
FoundFiles choose_files(const Search& search, const std::vector<std::string>& paths);

// One line for each reason: "README.md, LICENSE.txt and 3 more: not a data file".
std::vector<std::string> describe_left_out(const std::vector<LeftOut>& files);

}  // namespace weft
