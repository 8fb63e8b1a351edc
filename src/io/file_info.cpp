// io/file_info.cpp: size and time of a file.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "io/file_system.h"

namespace weft {

FileInfo file_info(const std::string& path) {
  if (is_uri(path)) return uri_info(path);
  struct stat info {};
  require(::stat(path.c_str(), &info) == 0, "cannot open {}: {}", path, std::strerror(errno));
  require(S_ISREG(info.st_mode), "{} is not a plain file", path);
  return {path, info.st_size, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace weft
