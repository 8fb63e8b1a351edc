// base/indented_lines.h: a list in a message, one item per line.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Each item on a separate line, indented below the preceding sentence.
inline std::string indented_lines(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += "\n    " + item;
  return text;
}

}  // namespace weft
