// base/printable.h: untrusted text (rows, names, model output) made safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Control characters except line ends and tabs, U+0080 to U+009F (which some terminals interpret
// too), and bytes that are not UTF-8 are written as \xNN, byte by byte.
std::string printable(std::string_view text);

// The same on one line, for a name or a path: line ends and tabs are escaped too.
std::string printable_line(std::string_view text);

// The same for a message, whose own continuation lines are indented: a line end without a blank
// after it came from a name or a path, and is escaped.
std::string printable_message(std::string_view text);

// The same for JSON text, whose value stays the same: \u00NN.
std::string printable_json(std::string_view json);

}  // namespace weft
