// data/token_file.cpp: locks, maps, reads and writes.
#include "data/token_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_files.h"
#include "base/path.h"
#include "data/cache_store.h"

namespace weft {
namespace {

constexpr uint64_t kMagic = 0x314E4B4F54544657;  // "WFTTOKN1"

int open_file(const std::filesystem::path& path) {
  const int fd = open_plain_file(path, O_RDWR | O_CREAT, 0644);
  if (fd < 0) fail_cache(path, "open");
  return fd;
}

uint64_t size_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

}  // namespace

TokenFile::TokenFile(std::filesystem::path folder, uint64_t key, int64_t num_blocks)
    : folder_(std::move(folder)), key_(key), num_blocks_(num_blocks) {
  if (folder_.empty()) {
    index_ = ::memfd_create("weft tokens index", MFD_CLOEXEC);
    tokens_ = ::memfd_create("weft tokens", MFD_CLOEXEC);
    if (index_ < 0 || tokens_ < 0) fail_cache("memory", "reserve");
    return;
  }
  used_ = open_cache_folder(folder_);
  lock_ = open_file(folder_ / "lock");
  index_ = open_file(folder_ / "index");
  tokens_ = open_file(folder_ / "tokens");
}

TokenFile::~TokenFile() {
  unmap_index(header_);
  for (const int fd : {used_, lock_, index_, tokens_}) {
    if (fd >= 0) ::close(fd);
  }
}

TokenFile::Header* TokenFile::map() const {
  void* at = ::mmap(nullptr, index_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, index_, 0);
  if (at == MAP_FAILED) fail_cache(folder_ / "index", "map");
  if (!folder_.empty()) watch_mapping(at, index_bytes(), folder_ / "index");
  return static_cast<Header*>(at);
}

void TokenFile::unmap_index(Header* header) const {
  if (!header) return;
  unwatch_mapping(header);
  ::munmap(header, index_bytes());
}

size_t TokenFile::index_bytes() const {
  return sizeof(Header) + static_cast<size_t>(num_blocks_) * sizeof(Record);
}

TokenFile::Record& TokenFile::record(int64_t block) const {
  ensure(header_ && block >= 0 && block < num_blocks_, "block outside the cache");
  return reinterpret_cast<Record*>(header_ + 1)[block];
}

// False where the index does not exist yet, or is not ours.
bool TokenFile::map_index() {
  if (header_) return true;
  if (size_of(index_) != index_bytes()) return false;
  Header* const header = map();
  const uint64_t magic = std::atomic_ref(header->magic).load(std::memory_order_acquire);
  const bool good = magic == kMagic && header->key == key_ &&
                    header->num_blocks == static_cast<uint64_t>(num_blocks_);
  if (!good) {
    unmap_index(header);
    return false;
  }
  header_ = header;
  return true;
}

// Allocates its full size: it is written through a mapping, where a full disk is not an error code
// but a SIGBUS. False with errno set.
bool TokenFile::grow_index() const {
  const auto size = static_cast<off_t>(index_bytes());
  int failure;
  while ((failure = ::posix_fallocate(index_, 0, size)) == EINTR) {
  }
  if (failure == EOPNOTSUPP || failure == EINVAL) return ::ftruncate(index_, size) == 0;
  errno = failure;
  return failure == 0;
}

void TokenFile::make_index() {
  was_reset_ = size_of(index_) > 0;
  was_made_ = true;
  if (::ftruncate(index_, 0) != 0 || ::ftruncate(tokens_, 0) != 0 || !grow_index()) {
    fail_cache(folder_ / "index", "write");
  }
  header_ = map();
  header_->key = key_;
  header_->num_blocks = static_cast<uint64_t>(num_blocks_);
  std::atomic_ref(header_->magic).store(kMagic, std::memory_order_release);
}

bool TokenFile::try_lock() {
  if (is_writer_) return true;
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail_cache(folder_ / "lock", "lock");
    return false;
  }
  if (!map_index()) make_index();
  // A record that points outside the file is dropped; bytes after the last record are unused.
  const uint64_t size = size_of(tokens_);
  uint64_t end = 0;
  for (int64_t b = 0; b < num_blocks_; ++b) {
    Record& r = record(b);
    if (r.state.load() != kWhole) continue;
    if (r.offset > size || r.bytes > size - r.offset) {
      r.state.store(kAbsent);
      ++num_lost_;
    } else {
      end = std::max(end, r.offset + r.bytes);
    }
  }
  end_.store(end);
  is_writer_ = true;
  return true;
}

void TokenFile::unlock() {
  if (lock_ >= 0) ::flock(lock_, LOCK_UN);
}

bool TokenFile::is_open() { return map_index(); }

TokenFile::State TokenFile::state(int64_t block) const {
  const uint32_t state = record(block).state.load(std::memory_order_acquire);
  return state == kWhole || state == kDamaged ? static_cast<State>(state) : kAbsent;
}

void TokenFile::append(int64_t block, int64_t num_rows, std::string_view bytes) {
  ensure(is_writer_, "only the writer appends");
  Record& r = record(block);
  const uint64_t offset = end_.fetch_add(bytes.size());
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(tokens_, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_cache(folder_ / "tokens", "write");
    done += static_cast<size_t>(n);
  }
  r.offset = offset;
  r.bytes = bytes.size();
  r.checksum = hash_text(bytes, key_ + static_cast<uint64_t>(block));
  r.num_rows = static_cast<uint32_t>(num_rows);
  r.state.store(kWhole, std::memory_order_release);
}

void TokenFile::mark_damaged(int64_t block) { record(block).state.store(kDamaged); }
void TokenFile::clear(int64_t block) { record(block).state.store(kAbsent); }

bool TokenFile::read_block(int64_t block, std::string& out) const {
  const Record& r = record(block);
  if (r.offset > size_of(tokens_) || r.bytes > size_of(tokens_) - r.offset) return false;
  out.resize(r.bytes);
  read_part(block, 0, out.size(), out.data());
  return hash_text(out, key_ + static_cast<uint64_t>(block)) == r.checksum;
}

void TokenFile::read_part(int64_t block, uint64_t begin, size_t size, void* out) const {
  const uint64_t offset = record(block).offset + begin;
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::pread(tokens_, static_cast<char*>(out) + done, size - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0)
      throw RunError(
          fmt::format("token cache {} changed while it was in use: it has {} bytes, but block {} "
                      "ends at {}",
                      (folder_ / "tokens").string(), size_of(tokens_), block, offset + size),
          "run the same command again: lost blocks are rebuilt");
    if (n < 0) fail_cache(folder_ / "tokens", "read");
    done += static_cast<size_t>(n);
  }
}

}  // namespace weft
