// base/suggest.h: the nearest known word, for messages about one that is not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known` (the first of equals), if it is near enough to be meant: no more than a
// third of the longer word changed, and at least one change is always allowed.
std::optional<std::string> find_nearest(std::string_view word,
                                        const std::vector<std::string>& known);

}  // namespace weft
