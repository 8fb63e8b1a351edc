// base/path.cpp: stat and readdir with their errors distinguished.
#include "base/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace weft {
namespace {

bool means_nothing(int reason) { return reason == ENOENT || reason == ENOTDIR; }

const char* hint_for(int reason) {
  switch (reason) {
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its parent folders";
    case EMFILE:
    case ENFILE:
      return "raise the number of open files (ulimit -n)";
    case EROFS:
      return "the file system is mounted read-only";
    case EIO:
    case ESTALE:
      return "check the disk or the network folder it is on";
    default:
      return "";
  }
}

}  // namespace

namespace {

const char* kind_of_node(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISDIR(mode) ? "a folder" : "a device";
}

[[noreturn]] void refuse_node(const std::filesystem::path& path, mode_t mode) {
  throw UserError(
      fmt::format("{} is {}, wanted a regular file", path.string(), kind_of_node(mode)),
      S_ISDIR(mode) ? "" : "copy its content to a regular file, and give the path of that file");
}

}  // namespace

// A FIFO without a reader and a socket are refused by open itself (ENXIO).
int open_plain_file(const std::filesystem::path& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, mode);
  const int reason = errno;
  struct stat info {};
  if (fd < 0) {
    if (reason == ENXIO && ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      refuse_node(path, info.st_mode);
    errno = reason;
    return -1;
  }
  if (::fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  refuse_node(path, info.st_mode);
}

void throw_refused(const char* what, const std::filesystem::path& path, int reason) {
  throw RunError(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(reason)),
                 hint_for(reason));
}

PathKind path_kind(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISREG(info.st_mode)) return PathKind::kFile;
    return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kOther;
  }
  if (!means_nothing(errno)) throw_refused("access", path, errno);
  if (::lstat(path.c_str(), &info) == 0) {
    throw RunError(fmt::format("{} is a dangling symbolic link", path.string()),
                   "mount its target, or remove the link");
  }
  if (!means_nothing(errno)) throw_refused("access", path, errno);
  return PathKind::kNothing;
}

std::vector<std::string> folder_names(const std::filesystem::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (!open) {
    const int reason = errno;
    if (reason != ENOENT) throw_refused("list", folder, reason);
    static_cast<void>(path_kind(folder));  // a dangling link throws
    return {};
  }
  std::vector<std::string> names;
  for (errno = 0; const dirent* entry = ::readdir(open.get()); errno = 0) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) throw_refused("list", folder, errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::string unused_name(const std::string& name,
                        const std::function<bool(const std::string&)>& is_used) {
  std::string unused = name;
  for (int i = 2; is_used(unused); ++i) unused = fmt::format("{}-{}", name, i);
  return unused;
}

std::filesystem::path unused_path(const std::filesystem::path& path) {
  return unused_name(path.string(),
                     [](const std::string& name) { return path_kind(name) != PathKind::kNothing; });
}

}  // namespace weft
