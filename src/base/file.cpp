// base/file.cpp: POSIX files with errors that name the path and the system's reason.
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/path.h"

namespace weft {
namespace {

// A wrong name is the user's error; a failing system call is not.
[[noreturn]] void fail_open(const std::filesystem::path& path, int reason) {
  if (reason != ENOENT && reason != ENOTDIR && reason != ENAMETOOLONG && reason != ELOOP)
    throw_refused("open", path, reason);
  throw UserError(fmt::format("cannot open {}: {}", path.string(), std::strerror(reason)));
}

int open_for_reading(const std::filesystem::path& path, size_t* size) {
  const int fd = open_plain_file(path, O_RDONLY);
  if (fd < 0) fail_open(path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int reason = errno;
    ::close(fd);
    throw_refused("access", path, reason);
  }
  *size = static_cast<size_t>(info.st_size);
  return fd;
}

}  // namespace

void fail_write(const std::filesystem::path& path) {
  throw RunError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)),
                 errno == ENOSPC ? "free space on that disk, then run the same command again" : "");
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  size_t size = 0;
  const int fd = open_for_reading(path, &size);
  if (size > max_bytes) {
    ::close(fd);
    throw UserError(
        fmt::format("{} holds {} bytes, more than the {} we read", path.string(), size, max_bytes));
  }
  std::string text(size, '\0');
  size_t done = 0;
  int reason = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) reason = errno;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  if (reason != 0) throw_refused("read", path, reason);
  require(done == size, "{}: truncated while being read, got {} of {} bytes", path.string(), done,
          size);
  return text;
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path beside = path;
  beside += ".new";
  {
    FileWriter out(beside, FileWriter::Mode::kTruncate);
    out.write(bytes);
    out.sync();
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) fail_write(path);
  sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int fd = open_for_reading(path, &size_);
  if (size_ > 0) {
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int reason = errno;
    ::close(fd);
    if (at == MAP_FAILED) throw_refused("map", path, reason);
    data_ = static_cast<const std::byte*>(at);
    watch_mapping(data_, size_, path);
  } else {
    ::close(fd);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!data_) return;
  unwatch_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void MappedFile::drop_pages(size_t begin, size_t end) const {
  constexpr size_t kGroup = size_t{1} << 16;  // the kernel's own; a multiple of every page size
  begin = begin / kGroup * kGroup;
  end = std::min(size_, (end + kGroup - 1) / kGroup * kGroup);
  if (data_ && begin < end) {
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

FileWriter::FileWriter(const std::filesystem::path& path, Mode mode) : path_(path) {
  const int how = mode == Mode::kAppend ? O_APPEND : O_TRUNC;
  fd_ = open_plain_file(path, O_WRONLY | O_CREAT | how, 0644);
  if (fd_ < 0) fail_write(path_);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::write(const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(fd_, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(path_);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void FileWriter::sync() {
  if (::fsync(fd_) != 0) fail_write(path_);
}

void sync_directory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_write(path);
  const int bad = ::fsync(fd);
  ::close(fd);
  if (bad) fail_write(path);
}

}  // namespace weft
