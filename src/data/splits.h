// data/splits.h: the split of a data set that a file belongs to, by its name, as Hugging Face's
// `datasets` tells splits apart.
//
// A keyword counts as a word: between characters that are no letters, or at an end. Names of
// folders count first: only where none of the files has a keyword there, the files' names count.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr std::string_view kSplitNames[] = {"train", "validation", "test"};

// Of each path (below the data's folder), as bits by the order of kSplitNames; 0: no split is
// named.
std::vector<unsigned> splits_of(const std::vector<std::string>& paths);

}  // namespace weft
