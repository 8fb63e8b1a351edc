// io/file_info.cpp: size and time of a file.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/path.h"
#include "io/file_system.h"

namespace weft {

FileInfo file_info(const std::string& path) {
  if (is_uri(path)) return uri_info(path);
  struct stat info {};
  require(::stat(path.c_str(), &info) == 0, "cannot open {}: {}", path, std::strerror(errno));
  // Throws an error that names the kind of node.
  if (!S_ISREG(info.st_mode)) open_plain_file(path, O_RDONLY);
  require(S_ISREG(info.st_mode), "{} is not a regular file", path);
  const auto ns = [](const timespec& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; };
  return {path, info.st_size, ns(info.st_mtim), info.st_ino, ns(info.st_ctim)};
}

}  // namespace weft
