// io/glob.h: patterns over paths, in which ** stands for folders at any depth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// *, ? and [] match within one part of the path and not a leading period; a part that is ** matches
// any number of folders, also none, but no hidden ones.
bool glob_matches(std::string_view pattern, std::string_view path);

// The plain files that match, sorted by name. Folders that are links are followed.
std::vector<std::string> glob_files(const std::string& pattern);

}  // namespace weft
