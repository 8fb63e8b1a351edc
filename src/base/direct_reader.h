// base/direct_reader.h: reads of a file at any offset, past the page cache where that is possible.
//
// A file that is read once gains nothing from the cache and pays for another copy: measured on an
// NVMe disk, 1.2 to 1.7 GB/s through it, 3.5 GB/s directly (docs/design/0014-reading.md).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <new>

namespace weft {

// Aligned memory for DirectReader::read.
class ReadBuffer {
 public:
  static constexpr size_t kAlignment = 4096;
  explicit ReadBuffer(size_t bytes);  // the most that one read returns
  std::byte* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(kAlignment)); }
  };
  size_t capacity_;
  std::unique_ptr<std::byte[], Free> data_;
};

class DirectReader {
 public:
  // UserError where there is no such file; RunError where the system refuses to open it.
  explicit DirectReader(std::filesystem::path path);
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  // Bytes [offset, offset + size) of the file; they lie in the buffer. RunError where the system
  // cannot read them, or where the file ends before: the caller knew its size. Thread-safe, with a
  // buffer per thread.
  const std::byte* read(size_t offset, size_t size, const ReadBuffer& buffer) const;

 private:
  size_t read_some(int fd, size_t offset, std::byte* to, size_t wanted) const;

  std::filesystem::path path_;
  int fd_ = -1;
  int direct_ = -1;  // the same file, opened with O_DIRECT; -1: not possible
};

}  // namespace weft
