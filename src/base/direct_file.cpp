// base/direct_file.cpp: one descriptor with O_DIRECT, one without.
#include "base/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/path.h"

namespace weft {

DirectFile::DirectFile(std::filesystem::path path, size_t bytes) : path_(std::move(path)) {
  fd_ = open_plain_file(path_, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd_ < 0) fail_write(path_);
  if (bytes > 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    const int reason = errno;
    ::close(fd_);
    errno = reason;
    fail_write(path_);
  }
  direct_ = ::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
}

DirectFile::~DirectFile() {
  if (direct_ >= 0) ::close(direct_);
  if (fd_ >= 0) ::close(fd_);
}

void DirectFile::write(size_t offset, const std::byte* data, size_t size) {
  const bool is_aligned =
      offset % kAlignment == 0 && reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
  const size_t direct = is_aligned && direct_ >= 0 ? size - size % kAlignment : 0;
  if (direct > 0) write_all(direct_, offset, data, direct);
  write_all(fd_, offset + direct, data + direct, size - direct);
}

void DirectFile::write_all(int fd, size_t offset, const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, data, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd == direct_) {  // some file systems refuse only here
      fd = fd_;
      continue;
    }
    if (n <= 0) fail_write(path_);
    const auto written = static_cast<size_t>(n);
    if (fd == direct_) direct_bytes_ += written;
    offset += written;
    data += written;
    size -= written;
    if (written % kAlignment != 0) fd = fd_;
  }
}

void DirectFile::sync() {
  if (::fsync(fd_) != 0) fail_write(path_);
}

}  // namespace weft
