// base/cache_folder.cpp: the XDG rule: a relative path is ignored.
#include "base/cache_folder.h"

#include <cstdlib>

namespace weft {

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::filesystem::path(cache) / "weft";
  const char* home = std::getenv("HOME");
  if (home && *home) return std::filesystem::path(home) / ".cache" / "weft";
  return {};
}

}  // namespace weft
