// base/environment.h: environment variables that choose among words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The variable's value; empty where it is unset or empty. Any other word is a UserError that lists
// the allowed ones; `answer` may say more about it than the nearest match.
std::string environment_choice(const char* variable, const std::vector<std::string>& words,
                               std::string (*answer)(std::string_view word) = nullptr);

}  // namespace weft
