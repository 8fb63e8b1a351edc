// base/environment.h: variables of the environment that choose among words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The variable's word; empty where it is not set, or set to nothing. UserError that lists the words
// where it is another; `answer` may say more of that one than the nearest of the list.
std::string environment_choice(const char* variable, const std::vector<std::string>& words,
                               std::string (*answer)(std::string_view word) = nullptr);

}  // namespace weft
