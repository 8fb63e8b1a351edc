// tests/faults/preload_library.cpp: system calls on files that fail on demand, by LD_PRELOAD.
//
// The functions of the C library through which programs (and libstdc++) reach files are defined
// here. Each asks rules.cpp whether to fail, and otherwise makes the system call itself: no dlsym,
// no lock and no allocation, so that any thread or signal handler may call. Calls on a file
// descriptor are judged by the path that it is open on. What stdio does inside libc cannot be
// intercepted; fopen itself is, and libstdc++'s streams read and write by read and writev.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "tests/faults/rules.h"

using weft::faults::Action;
using weft::faults::decide;
using weft::faults::Fault;
using weft::faults::Kind;
using weft::faults::PathName;

namespace {

bool fails(const Fault& fault) {
  if (fault.action != Action::kFail) return false;
  errno = fault.error;
  return true;
}

size_t allowed(const Fault& fault, size_t bytes) {
  return fault.action == Action::kShorten && fault.bytes < bytes ? fault.bytes : bytes;
}

int do_open(int folder, const char* path, int flags, mode_t mode) {
  const PathName name(folder, path);
  if ((flags & O_DIRECTORY) != 0 && fails(decide(Kind::kOpendir, name))) return -1;
  if (fails(decide(Kind::kOpen, name))) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

int do_stat(int folder, const char* path, void* info, int flags) {
  const bool by_fd = (flags & AT_EMPTY_PATH) != 0 && path[0] == '\0';
  const PathName name = by_fd ? PathName(folder) : PathName(folder, path);
  if (fails(decide(Kind::kStat, name))) return -1;
  return static_cast<int>(::syscall(SYS_newfstatat, folder, path, info, flags));
}

int do_rename(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (fails(decide(Kind::kRename, PathName(from_folder, from), PathName(to_folder, to)))) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int do_unlink(int folder, const char* path, int flags) {
  if (fails(decide(Kind::kUnlink, PathName(folder, path)))) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

ssize_t do_read(int fd, void* out, size_t bytes) {
  const Fault fault = decide(Kind::kRead, PathName(fd), bytes);
  return fails(fault) ? -1 : ::syscall(SYS_read, fd, out, allowed(fault, bytes));
}

ssize_t do_pread(int fd, void* out, size_t bytes, off_t at) {
  const Fault fault = decide(Kind::kRead, PathName(fd), bytes);
  return fails(fault) ? -1 : ::syscall(SYS_pread64, fd, out, allowed(fault, bytes), at);
}

ssize_t do_pwrite(int fd, const void* from, size_t bytes, off_t at) {
  const Fault fault = decide(Kind::kWrite, PathName(fd), bytes);
  return fails(fault) ? -1 : ::syscall(SYS_pwrite64, fd, from, allowed(fault, bytes), at);
}

ssize_t do_writev(int fd, const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  const Fault fault = decide(Kind::kWrite, PathName(fd), bytes);
  if (fails(fault)) return -1;
  if (fault.action != Action::kShorten) return ::syscall(SYS_writev, fd, parts, count);
  int first = 0;
  while (first < count && parts[first].iov_len == 0) ++first;
  if (first == count) return 0;
  return ::syscall(SYS_write, fd, parts[first].iov_base, allowed(fault, parts[first].iov_len));
}

int do_truncate(int fd, off_t bytes) {
  if (fails(decide(Kind::kTruncate, PathName(fd)))) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}

int do_allocate(int fd, int mode, off_t begin, off_t bytes) {
  if (fails(decide(Kind::kAllocate, PathName(fd)))) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, begin, bytes));
}

void* do_mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && fails(decide(Kind::kMmap, PathName(fd)))) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

// Functions that keep state inside libc: libc's own are called. Looked up when the library is
// loaded.
template <class Function>
Function next(Function& known, const char* name) {
  if (!known) known = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  return known;
}
FILE* (*next_fopen)(const char*, const char*) = nullptr;
DIR* (*next_opendir)(const char*) = nullptr;
DIR* (*next_fdopendir)(int) = nullptr;
dirent* (*next_readdir)(DIR*) = nullptr;

__attribute__((constructor)) void find_next() {
  next(next_fopen, "fopen");
  next(next_opendir, "opendir");
  next(next_fdopendir, "fdopendir");
  next(next_readdir, "readdir");
}

FILE* do_fopen(const char* path, const char* mode) {
  if (fails(decide(Kind::kOpen, PathName(AT_FDCWD, path)))) return nullptr;
  return next(next_fopen, "fopen")(path, mode);
}

dirent* do_readdir(DIR* folder) {
  if (fails(decide(Kind::kReaddir, PathName(::dirfd(folder))))) return nullptr;
  return next(next_readdir, "readdir")(folder);
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

// Both names of each call: on 64-bit systems open and open64 are the same, and callers use either.
// The names with _2 are those of code built with _FORTIFY_SOURCE.
extern "C" {

#define WEFT_OPEN(name)                          \
  int name(const char* path, int flags, ...) {   \
    va_list rest;                                \
    va_start(rest, flags);                       \
    const mode_t mode = mode_of(flags, rest);    \
    va_end(rest);                                \
    return do_open(AT_FDCWD, path, flags, mode); \
  }
#define WEFT_OPENAT(name)                                  \
  int name(int folder, const char* path, int flags, ...) { \
    va_list rest;                                          \
    va_start(rest, flags);                                 \
    const mode_t mode = mode_of(flags, rest);              \
    va_end(rest);                                          \
    return do_open(folder, path, flags, mode);             \
  }
WEFT_OPEN(open)
WEFT_OPEN(open64)
WEFT_OPENAT(openat)
WEFT_OPENAT(openat64)
// NOLINTBEGIN(readability-identifier-naming): glibc's names
int __open_2(const char* path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char* path, int flags) { return do_open(folder, path, flags, 0); }
int __openat64_2(int folder, const char* path, int flags) {
  return do_open(folder, path, flags, 0);
}
// NOLINTEND(readability-identifier-naming)
FILE* fopen(const char* path, const char* mode) { return do_fopen(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return do_fopen(path, mode); }

DIR* opendir(const char* path) {
  const PathName name(AT_FDCWD, path);
  if (fails(decide(Kind::kOpendir, name)) || fails(decide(Kind::kOpen, name))) return nullptr;
  return next(next_opendir, "opendir")(path);
}
DIR* fdopendir(int fd) {
  if (fails(decide(Kind::kOpendir, PathName(fd)))) return nullptr;
  return next(next_fdopendir, "fdopendir")(fd);
}
dirent* readdir(DIR* folder) { return do_readdir(folder); }
dirent64* readdir64(DIR* folder) { return reinterpret_cast<dirent64*>(do_readdir(folder)); }

int stat(const char* path, struct stat* info) __THROW { return do_stat(AT_FDCWD, path, info, 0); }
int stat64(const char* path, struct stat64* info) __THROW {
  return do_stat(AT_FDCWD, path, info, 0);
}
int lstat(const char* path, struct stat* info) __THROW {
  return do_stat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char* path, struct stat64* info) __THROW {
  return do_stat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct stat* info) __THROW { return do_stat(fd, "", info, AT_EMPTY_PATH); }
int fstat64(int fd, struct stat64* info) __THROW { return do_stat(fd, "", info, AT_EMPTY_PATH); }
int fstatat(int folder, const char* path, struct stat* info, int flags) __THROW {
  return do_stat(folder, path, info, flags);
}
int fstatat64(int folder, const char* path, struct stat64* info, int flags) __THROW {
  return do_stat(folder, path, info, flags);
}
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* info) __THROW {
  const bool by_fd = (flags & AT_EMPTY_PATH) != 0 && path[0] == '\0';
  if (fails(decide(Kind::kStat, by_fd ? PathName(folder) : PathName(folder, path)))) return -1;
  return static_cast<int>(::syscall(SYS_statx, folder, path, flags, mask, info));
}

int mkdir(const char* path, mode_t mode) __THROW {
  if (fails(decide(Kind::kMkdir, PathName(AT_FDCWD, path)))) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) __THROW {
  return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) __THROW {
  return do_rename(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) __THROW {
  return do_rename(from_folder, from, to_folder, to, flags);
}
int unlink(const char* path) __THROW { return do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char* path, int flags) __THROW {
  return do_unlink(folder, path, flags);
}
int rmdir(const char* path) __THROW { return do_unlink(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) __THROW {
  if (fails(decide(Kind::kUnlink, PathName(AT_FDCWD, path)))) return -1;
  if (::syscall(SYS_unlinkat, AT_FDCWD, path, 0) == 0) return 0;
  if (errno != EISDIR) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

ssize_t read(int fd, void* out, size_t bytes) { return do_read(fd, out, bytes); }
ssize_t pread(int fd, void* out, size_t bytes, off_t at) { return do_pread(fd, out, bytes, at); }
ssize_t pread64(int fd, void* out, size_t bytes, off64_t at) {
  return do_pread(fd, out, bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  const Fault fault = decide(Kind::kWrite, PathName(fd), bytes);
  return fails(fault) ? -1 : ::syscall(SYS_write, fd, from, allowed(fault, bytes));
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  return do_pwrite(fd, from, bytes, at);
}
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) {
  return do_pwrite(fd, from, bytes, at);
}
ssize_t writev(int fd, const iovec* parts, int count) { return do_writev(fd, parts, count); }
ssize_t sendfile(int to, int from, off_t* at, size_t bytes) __THROW {
  const Fault fault = decide(Kind::kWrite, PathName(to), bytes);
  return fails(fault) ? -1 : ::syscall(SYS_sendfile, to, from, at, allowed(fault, bytes));
}

int fsync(int fd) {
  return fails(decide(Kind::kFsync, PathName(fd))) ? -1
                                                   : static_cast<int>(::syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  return fails(decide(Kind::kFsync, PathName(fd))) ? -1
                                                   : static_cast<int>(::syscall(SYS_fdatasync, fd));
}
int ftruncate(int fd, off_t bytes) __THROW { return do_truncate(fd, bytes); }
int ftruncate64(int fd, off64_t bytes) __THROW { return do_truncate(fd, bytes); }
int truncate(const char* path, off_t bytes) __THROW {
  if (fails(decide(Kind::kTruncate, PathName(AT_FDCWD, path)))) return -1;
  return static_cast<int>(::syscall(SYS_truncate, path, bytes));
}
int fallocate(int fd, int mode, off_t begin, off_t bytes) {
  return do_allocate(fd, mode, begin, bytes);
}
int fallocate64(int fd, int mode, off64_t begin, off64_t bytes) {
  return do_allocate(fd, mode, begin, bytes);
}
int posix_fallocate(int fd, off_t begin, off_t bytes) {
  return do_allocate(fd, 0, begin, bytes) == 0 ? 0 : errno;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) __THROW {
  return do_mmap(at, bytes, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off64_t offset) __THROW {
  return do_mmap(at, bytes, protection, flags, fd, offset);
}
// The descriptor is closed even where that fails, as Linux does.
int close(int fd) {
  const Fault fault = decide(Kind::kClose, PathName(fd));
  const int bad = static_cast<int>(::syscall(SYS_close, fd));
  return fails(fault) ? -1 : bad;
}

}  // extern "C"
