// data/splits.h: finds the split of a file from its path, with the rules of Hugging Face's
// `datasets`.
//
// A keyword must be a whole word: letters neither precede nor follow it. Folder names take
// precedence: file names are used only if no file has a keyword in its folder names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr std::string_view kSplitNames[] = {"train", "validation", "test"};

// The splits that each path (below the data folder) names, as bits in the order of kSplitNames; 0:
// none.
std::vector<unsigned> splits_of(const std::vector<std::string>& paths);

}  // namespace weft
