// base/printable.h: text of others (rows, names, what a model says), fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Control characters but line ends and tabs, those of U+0080 to U+009F (which some terminals obey
// too), and bytes that are no UTF-8 are written as \xNN, byte by byte.
std::string printable(std::string_view text);

// The same on one line, for a name or a path: line ends and tabs are written out too.
std::string printable_line(std::string_view text);

// The same of a message, whose own further lines are indented: a line end that no blank follows
// came with a name or a path, and is written out.
std::string printable_message(std::string_view text);

// The same of JSON text, which stays the same value: \u00NN.
std::string printable_json(std::string_view json);

}  // namespace weft
