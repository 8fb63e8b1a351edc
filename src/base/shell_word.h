// base/shell_word.h: text as one word of a shell command that a hint shows.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// As it is where no shell reads anything into it, else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace weft
