// base/environment.cpp: a variable's value must match one of the allowed words.
#include "base/environment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/suggest.h"

namespace weft {

std::string environment_choice(const char* variable, const std::vector<std::string>& words,
                               std::string (*answer)(std::string_view word)) {
  const char* set = std::getenv(variable);
  const std::string word = set ? set : "";
  if (word.empty() || std::find(words.begin(), words.end(), word) != words.end()) return word;
  const std::string answer_text = answer ? answer(word) : "";
  throw UserError(fmt::format("{}={}, wanted {}{}", variable, word, fmt::join(words, " | "),
                              answer_text.empty() ? did_you_mean(word, words) : answer_text),
                  fmt::format("unset {} to let weft choose", variable));
}

}  // namespace weft
