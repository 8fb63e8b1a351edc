// net/shared_segment.h: anonymous memory that the processes of one machine share.
//
// A memfd: it lives as long as a process holds it, so nothing leaks however we die. The file is
// sparse: untouched bytes use no memory, and its size is only an upper bound.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kLargestPage = 64 << 10;  // of the page sizes in use

class SharedSegment {
 public:
  static SharedSegment create(const char* name, int64_t bytes);
  // For a segment created elsewhere; takes ownership of the descriptor, which exec then closes.
  static SharedSegment attach(int fd);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  int fd() const { return fd_; }
  int64_t bytes() const { return bytes_; }
  // Maps a part of it, until unmap_part. offset: a multiple of the page size.
  [[nodiscard]] char* map_part(int64_t offset, int64_t bytes) const;
  // Frees the memory of these bytes, also where they are mapped: they are 0 from here on.
  void release(int64_t offset, int64_t bytes) const;

 private:
  SharedSegment(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}
  int fd_;
  int64_t bytes_;
};

void unmap_part(void* part, int64_t bytes) noexcept;

}  // namespace weft
