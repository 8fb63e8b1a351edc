// net/shared_segment.cpp: memfd_create and mmap.
#include "net/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace weft {

SharedSegment SharedSegment::create(const char* name, int64_t bytes) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) throw RunError(fmt::format("cannot create shared memory: {}", std::strerror(errno)));
  SharedSegment segment(fd, bytes);
  if (::ftruncate(fd, bytes) != 0) {
    throw RunError(
        fmt::format("cannot allocate {} bytes of shared memory: {}", bytes, std::strerror(errno)));
  }
  return segment;
}

SharedSegment SharedSegment::attach(int fd) {
  struct stat info {};
  require(fd >= 0 && ::fstat(fd, &info) == 0, "descriptor {} is not weft's shared memory", fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return {fd, static_cast<int64_t>(info.st_size)};
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (fd_ >= 0) ::close(fd_);
}

char* SharedSegment::map_part(int64_t offset, int64_t bytes) const {
  ensure(offset >= 0 && bytes > 0 && offset <= bytes_ - bytes, "a part outside the segment");
  void* part =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, offset);
  if (part == MAP_FAILED) {
    throw RunError(
        fmt::format("cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno)));
  }
  ::madvise(part, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // where the system allows it
  return static_cast<char*>(part);
}

void SharedSegment::release(int64_t offset, int64_t bytes) const {
  if (bytes <= 0) return;
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) != 0)
    throw RunError(fmt::format("cannot release shared memory: {}", std::strerror(errno)));
}

void unmap_part(void* part, int64_t bytes) noexcept {
  if (part != nullptr) ::munmap(part, static_cast<size_t>(bytes));
}

}  // namespace weft
