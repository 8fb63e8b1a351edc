// base/shell_word.h: text as one word of a shell command that a hint shows.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Unchanged where it has no meaning to a shell, else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace weft
