// base/error.cpp: an internal error names its source location.
#include "base/error.h"

#include <cstring>

namespace weft {

void throw_bug(const char* file, int line, const std::string& message) {
  const char* room = std::strstr(file, "src/");
  throw BugError(fmt::format("{} ({}:{})", message, room ? room + 4 : file, line));
}

}  // namespace weft
