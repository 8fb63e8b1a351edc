// io/glob.h: patterns over paths, in which ** stands for folders at any depth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// *, ? and [] match within one path component, and do not match a leading period. A component **
// matches zero or more folders that are not hidden.
bool glob_matches(std::string_view pattern, std::string_view path);

// The regular files that match, sorted by name. Symbolic links to folders are followed.
std::vector<std::string> glob_files(const std::string& pattern);

}  // namespace weft
