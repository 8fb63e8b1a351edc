// base/direct_reader.cpp: one descriptor with O_DIRECT, one without.
#include "base/direct_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/path.h"

namespace weft {
namespace {

constexpr size_t kAlignment = ReadBuffer::kAlignment;

size_t aligned_up(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// An unaligned range touches one more page at either end.
ReadBuffer::ReadBuffer(size_t bytes)
    : capacity_(aligned_up(bytes) + 2 * kAlignment),
      data_(new (std::align_val_t(kAlignment)) std::byte[capacity_]) {}

DirectReader::DirectReader(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open_plain_file(path_, O_RDONLY);
  if (fd_ < 0) {
    if (errno != ENOENT && errno != ENOTDIR) throw_refused("open", path_, errno);
    throw UserError(fmt::format("{} is missing", path_.string()));
  }
  direct_ = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
}

DirectReader::~DirectReader() {
  if (direct_ >= 0) ::close(direct_);
  if (fd_ >= 0) ::close(fd_);
}

// Until `wanted` bytes are there or the file ends; how many are.
size_t DirectReader::read_some(int fd, size_t offset, std::byte* to, size_t wanted) const {
  size_t done = 0;
  while (done < wanted) {
    const ssize_t n = ::pread(fd, to + done, wanted - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd == direct_) {  // some file systems refuse only here
      fd = fd_;
      continue;
    }
    if (n < 0) throw_refused("read", path_, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
    if (done % kAlignment != 0) fd = fd_;  // at the end of the file, or a short read
  }
  return done;
}

const std::byte* DirectReader::read(size_t offset, size_t size, const ReadBuffer& buffer) const {
  const size_t before = direct_ >= 0 ? offset % kAlignment : 0, begin = offset - before;
  const size_t wanted = direct_ >= 0 ? aligned_up(before + size) : size;
  ensure(wanted <= buffer.capacity(), "a read does not fit into its buffer");
  const size_t done =
      size == 0 ? 0 : read_some(direct_ >= 0 ? direct_ : fd_, begin, buffer.data(), wanted);
  if (size > 0 && done < before + size) {
    throw RunError(fmt::format("{} changed while it was in use: it has {} bytes now, wanted {}",
                               path_.string(), begin + done, offset + size),
                   "restore the file, then run the same command again");
  }
  return buffer.data() + before;
}

}  // namespace weft
