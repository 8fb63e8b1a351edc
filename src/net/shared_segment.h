// net/shared_segment.h: memory without a name that processes of one machine share.
//
// A memfd: it lives as long as a process holds it, so nothing is left behind whatever kills us.
// The file is sparse: bytes that nobody touched take no memory, and its size is only a bound.
#pragma once

#include <cstdint>

namespace weft {

class SharedSegment {
 public:
  static SharedSegment create(const char* name, int64_t bytes);
  // Of a segment made elsewhere; takes over the descriptor, which exec then closes.
  static SharedSegment attach(int fd);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  int fd() const { return fd_; }
  int64_t bytes() const { return bytes_; }
  // A part of it in this process's memory, until unmap_part. offset: a multiple of the page.
  [[nodiscard]] char* map_part(int64_t offset, int64_t bytes) const;

 private:
  SharedSegment(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}
  int fd_;
  int64_t bytes_;
};

void unmap_part(void* part, int64_t bytes) noexcept;

}  // namespace weft
