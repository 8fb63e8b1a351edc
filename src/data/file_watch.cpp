// data/file_watch.cpp: checks files, retrying where the system only failed to answer.
#include "data/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/stop.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{100};  // between two tries
constexpr const char* kHint =
    "a run reads the same rows from its first step to its last: restore the file, "
    "with its time (cp -p), or start over with --overwrite";

enum class Look { kFound, kGone, kFailed };

// `why`: the reason where it was not found.
Look look_at(const std::string& path, FileInfo* now, std::string* why) {
  if (!is_uri(path)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      *why = std::strerror(errno);
      return errno == ENOENT || errno == ENOTDIR ? Look::kGone : Look::kFailed;
    }
    *now = {};
    now->path = path;
    now->size = info.st_size;
    now->time_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    return Look::kFound;
  }
  try {
    *now = file_info(path);
    return Look::kFound;
  } catch (const UserError& e) {  // missing, or no answer
    *why = e.what();
    return Look::kFailed;
  }
}

void check_file(const FileInfo& then, std::chrono::milliseconds retry_for) {
  const auto start = Clock::now();
  FileInfo now;
  std::string why;
  Look look;
  while ((look = look_at(then.path, &now, &why)) == Look::kFailed &&
         Clock::now() < start + retry_for) {
    throw_if_stopped();
    std::this_thread::sleep_for(kPause);
  }
  if (look == Look::kGone)
    throw RunError(fmt::format("{} was removed while in use: {}", then.path, why), kHint);
  if (look == Look::kFailed) {
    throw RunError(fmt::format("{} cannot be checked while in use: {}, for {:.1f} s", then.path,
                               why, static_cast<double>(retry_for.count()) / 1000),
                   "the same command resumes once the file can be read again");
  }
  if (now == then) return;
  throw RunError(
      fmt::format("{} changed while it was in use: it had {} bytes, now {}{}", then.path, then.size,
                  now.size, now.size == then.size ? ", with another modification time" : ""),
      kHint);
}

void keep_local(std::vector<FileInfo>& files) {
  std::erase_if(files, [](const FileInfo& file) { return is_uri(file.path); });
}

}  // namespace

void check_unchanged(const std::vector<FileInfo>& files, std::chrono::milliseconds retry_for) {
  for (const FileInfo& file : files) check_file(file, retry_for);
  check_mapped_files();
}

void check_local_unchanged(std::vector<FileInfo> files) {
  keep_local(files);
  check_unchanged(files);
}

void check_remote_unchanged(std::vector<FileInfo> files) {
  std::erase_if(files, [](const FileInfo& file) { return !is_uri(file.path); });
  check_unchanged(files);
}

FileWatch::FileWatch(std::vector<FileInfo> files) : files_(std::move(files)) { keep_local(files_); }

void FileWatch::check() {
  const auto start = Clock::now();
  if (start < next_) return;
  check_unchanged(files_);
  ++num_checks_;
  const auto took = Clock::now() - start;
  next_ = Clock::now() + std::max<Clock::duration>(kEvery, 100 * took);
}

}  // namespace weft
