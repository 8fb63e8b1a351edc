// tests/faults/call_program.cpp: makes one requested file call and prints its result.
//
//   call_program CALL PATH [BYTES]     prints 0 or the number of the error; for those that move
//                                      bytes, also how many they moved
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string path, text;

int error_if(bool bad) { return bad ? errno : 0; }

int with_fd(const std::function<bool(int)>& works) {
  const int fd = ::open(path.c_str(), O_RDWR);
  if (fd < 0) return 1000 + errno;  // not the requested call
  return error_if(!works(fd));
}

int moved(const std::function<ssize_t(int)>& move) {
  return with_fd([&](int fd) {
    const ssize_t bytes = move(fd);
    std::printf("%zd bytes, ", bytes);
    return bytes >= 0;
  });
}

int with_code(const std::function<void(std::error_code&)>& call) {
  std::error_code fault;
  call(fault);
  return fault.value();
}

int list_folder() {
  return with_code([](std::error_code& fault) {
    for (fs::directory_iterator at(path, fault), end; !fault && at != end; at.increment(fault)) {
    }
  });
}

int read_by_opendir() {
  DIR* folder = ::opendir(path.c_str());
  if (!folder) return errno;
  errno = 0;
  while (::readdir(folder)) {
  }
  return errno;
}

int open_beside() {  // a relative path below a folder's descriptor, as remove_all does
  const int folder = ::open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY);
  return error_if(::openat(folder, fs::path(path).filename().c_str(), O_RDONLY) < 0);
}

int open_from_here() {
  fs::current_path(fs::path(path).parent_path());
  return error_if(::open(fs::path(path).filename().c_str(), O_RDONLY) < 0);
}

int write_stream() {
  errno = 0;
  std::ofstream out(path);
  out << text << std::flush;
  return error_if(!out);
}

int map() {
  return with_fd(
      [](int fd) { return ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED; });
}

ssize_t write_parts(int fd) {
  iovec parts[] = {{nullptr, 0}, {text.data(), text.size()}};
  return ::writev(fd, parts, 2);
}

int write_three_times() {
  return with_fd([](int fd) {
    for (int i = 0; i < 3; ++i) {
      errno = 0;
      const ssize_t bytes = ::write(fd, text.data(), text.size());
      std::printf("%zd bytes %d, ", bytes, errno);
    }
    errno = 0;
    return true;
  });
}

const std::map<std::string, std::function<int()>> kCalls = {
    {"open", [] { return error_if(::open(path.c_str(), O_RDONLY) < 0); }},
    {"openat", open_beside},
    {"open_relative", open_from_here},
    {"fopen", [] { return error_if(!std::fopen(path.c_str(), "r")); }},
    {"ofstream", write_stream},
    {"opendir", read_by_opendir},
    {"directory_iterator", list_folder},
    {"stat",
     [] {
       struct stat info;
       return error_if(::stat(path.c_str(), &info) != 0);
     }},
    {"fstat",
     [] {
       return with_fd([](int fd) {
         struct stat info;
         return ::fstat(fd, &info) == 0;
       });
     }},
    {"statx",
     [] {
       struct statx info;
       return error_if(::statx(AT_FDCWD, path.c_str(), 0, STATX_SIZE, &info) != 0);
     }},
    {"file_size", [] { return with_code([](auto& fault) { (void)fs::file_size(path, fault); }); }},
    {"mkdir", [] { return error_if(::mkdir((path + ".d").c_str(), 0700) != 0); }},
    {"create_directories",
     [] { return with_code([](auto& fault) { fs::create_directories(path + ".d/e", fault); }); }},
    {"rename", [] { return error_if(::rename(path.c_str(), (path + ".x").c_str()) != 0); }},
    {"rename_to",
     [] {
       std::ofstream(fs::path(path).parent_path() / "from") << "x";
       return with_code(
           [](auto& fault) { fs::rename(fs::path(path).parent_path() / "from", path, fault); });
     }},
    {"renameat2",
     [] {
       return error_if(::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, (path + ".x").c_str(), 0) !=
                       0);
     }},
    {"unlink", [] { return error_if(::unlink(path.c_str()) != 0); }},
    {"remove", [] { return with_code([](auto& fault) { fs::remove(path, fault); }); }},
    {"remove_all", [] { return with_code([](auto& fault) { fs::remove_all(path, fault); }); }},
    {"write", [] { return moved([](int fd) { return ::write(fd, text.data(), text.size()); }); }},
    {"pwrite",
     [] { return moved([](int fd) { return ::pwrite(fd, text.data(), text.size(), 1); }); }},
    {"writev", [] { return moved(write_parts); }},
    {"write_three_times", write_three_times},
    {"read", [] { return moved([](int fd) { return ::read(fd, text.data(), text.size()); }); }},
    {"pread",
     [] { return moved([](int fd) { return ::pread(fd, text.data(), text.size(), 0); }); }},
    {"fsync", [] { return with_fd([](int fd) { return ::fsync(fd) == 0; }); }},
    {"fdatasync", [] { return with_fd([](int fd) { return ::fdatasync(fd) == 0; }); }},
    {"ftruncate", [] { return with_fd([](int fd) { return ::ftruncate(fd, 1) == 0; }); }},
    {"resize_file", [] { return with_code([](auto& fault) { fs::resize_file(path, 1, fault); }); }},
    {"fallocate", [] { return with_fd([](int fd) { return ::fallocate(fd, 0, 0, 9) == 0; }); }},
    {"posix_fallocate",
     [] { return with_fd([](int fd) { return (errno = ::posix_fallocate(fd, 0, 9)) == 0; }); }},
    {"mmap", map},
    {"close", [] { return with_fd([](int fd) { return ::close(fd) == 0; }); }},
    {"open_three_times",
     [] {
       for (int i = 0; i < 3; ++i) {
         const int fd = ::open(path.c_str(), O_RDONLY);
         std::printf("%d, ", error_if(fd < 0));
       }
       return 0;
     }},
};

}  // namespace

int main(int count, char** words) {
  if (count < 3 || !kCalls.contains(words[1])) return 2;
  path = words[2];
  text.assign(count > 3 ? std::stoul(words[3]) : 8, 'x');
  const int fault = kCalls.at(words[1])();
  std::printf("%d\n", fault);
  return 0;
}
