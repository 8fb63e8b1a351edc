// base/suggest.h: "did you mean": the known word nearest to an unknown one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The nearest word of the list, the first of equals; none where nothing is near: more than a third
// of the longer word's letters (and more than one letter) would have to change.
std::optional<std::string> nearest(std::string_view got, const std::vector<std::string>& known);

// ", did you mean \"word\"?" or nothing.
std::string did_you_mean(std::string_view got, const std::vector<std::string>& known);

}  // namespace weft
