// base/printable.h: text of others (rows, names, what a model says), fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Control characters but line ends and tabs, those of U+0080 to U+009F (which some terminals obey
// too), and bytes that are no UTF-8 are written as \xNN, byte by byte.
std::string printable(std::string_view text);

// The same of JSON text, which stays the same value: \u00NN.
std::string printable_json(std::string_view json);

}  // namespace weft
