// base/environment.h: variables of the environment that choose among words.
#pragma once

#include <string>
#include <vector>

namespace weft {

// The variable's word; empty where it is not set, or set to nothing. UserError that lists the words
// where it is another.
std::string environment_choice(const char* variable, const std::vector<std::string>& words);

}  // namespace weft
