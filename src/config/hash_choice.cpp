// config/hash_choice.cpp: one variable, four values.
#include "config/hash_choice.h"

#include <cstdlib>

#include "base/error.h"

namespace weft {

std::string hashes_word() {
  const char* given = std::getenv(kHashesVariable);
  const std::string word = given ? given : "";
  require(word.empty() || word == "0" || word == "1" || word == "start" || word == "all",
          "{} is \"{}\"; wanted: 1, start or all", kHashesVariable, word);
  return word;
}

}  // namespace weft
