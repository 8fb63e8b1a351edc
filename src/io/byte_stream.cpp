// io/byte_stream.cpp: plain files, bytes in memory, and the choice by name.
#include "io/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/path.h"
#include "io/file_system.h"

namespace weft {
namespace {

// A wrong or forbidden name is the user's error; too many open files or a failing disk is not.
bool is_of_name(int reason) {
  return reason == ENOENT || reason == ENOTDIR || reason == ENAMETOOLONG || reason == ELOOP ||
         reason == EACCES;
}

class LocalFile : public ByteStream {
 public:
  explicit LocalFile(const std::string& path) : path_(path), fd_(open_plain_file(path, O_RDONLY)) {
    if (fd_ < 0 && !is_of_name(errno)) throw_refused("open", path, errno);
    require(fd_ >= 0, "cannot open {}: {}", path, std::strerror(errno));
  }
  ~LocalFile() override { ::close(fd_); }
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  size_t read(char* out, size_t size) override {
    while (true) {
      const ssize_t n = ::read(fd_, out, size);
      if (n >= 0) return static_cast<size_t>(n);
      require(errno != EISDIR, "cannot read {}: {}", path_, std::strerror(errno));
      if (errno != EINTR) throw_refused("read", path_, errno);
    }
  }

 private:
  std::string path_;
  int fd_;
};

class MemoryStream : public ByteStream {
 public:
  explicit MemoryStream(std::string bytes) : bytes_(std::move(bytes)) {}
  size_t read(char* out, size_t size) override {
    const size_t n = std::min(size, bytes_.size() - at_);
    std::memcpy(out, bytes_.data() + at_, n);
    at_ += n;
    return n;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> stream_of_bytes(std::string bytes) {
  return std::make_unique<MemoryStream>(std::move(bytes));
}

bool is_packed(const std::string& path) { return path.ends_with(".gz") || path.ends_with(".zst"); }

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  std::unique_ptr<ByteStream> plain;
  if (is_uri(path)) {
    plain = open_uri(path);
  } else {
    plain = std::make_unique<LocalFile>(path);
  }
  if (path.ends_with(".gz")) return open_gzip(std::move(plain), path);
  if (path.ends_with(".zst")) return open_zstd(std::move(plain), path);
  return plain;
}

}  // namespace weft
