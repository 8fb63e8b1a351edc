// data/cache_store.cpp: lists, locks and removes folders.
#include "data/cache_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kDefaultMax = 50'000'000'000;
// `used` is removed last: without it the folder is not a cache in use.
constexpr const char* kFiles[] = {"tokens", "index", kCacheAbout, kCacheCounts, "lock", kCacheUsed};

// By its name and its files; a link is not followed.
bool is_cache(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code none;
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos &&
         entry.symlink_status(none).type() == fs::file_type::directory &&
         fs::is_regular_file(entry.path() / "index", none) &&
         fs::is_regular_file(entry.path() / "tokens", none) &&
         fs::is_regular_file(entry.path() / "lock", none);
}

// Opens the folder's `used` with an exclusive lock into fd; else why not.
Removal lock_alone(const fs::path& folder, int* fd) {
  const fs::path used = folder / kCacheUsed;
  *fd = ::open(used.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (*fd < 0) return errno == ENOENT ? Removal::kDone : Removal::kFailed;
  const bool is_locked = ::flock(*fd, LOCK_EX | LOCK_NB) == 0;
  const Removal refusal = is_locked || errno == EWOULDBLOCK ? Removal::kInUse : Removal::kFailed;
  if (is_locked && is_named(*fd, used)) return Removal::kDone;
  ::close(*fd);
  *fd = -1;
  return refusal;
}

// Without changing the file's time.
bool is_open(const fs::path& folder) {
  const int fd = ::open((folder / kCacheUsed).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;  // from a version without it
  const bool is_free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return !is_free;
}

void read_about(CacheEntry* entry) {
  try {
    const fs::path path = entry->folder / kCacheAbout;
    const Json about = parse_json(read_file(path, 1 << 16), path.string());
    entry->files = about.at("files").as_string();
    entry->num_rows = about.at("rows").as_int();
  } catch (const Error&) {  // absent or torn: the cache itself is still valid
  }
}

CacheEntry describe(const fs::path& folder) {
  CacheEntry entry;
  entry.folder = folder;
  for (const char* name : kFiles) {
    struct stat info {};
    if (::stat((folder / name).c_str(), &info) != 0) continue;
    entry.bytes += static_cast<int64_t>(info.st_blocks) * 512;
    // An older cache has no `used`: then the tokens' own time; in kFiles they come first.
    if (name == std::string_view("tokens") || name == std::string_view(kCacheUsed))
      entry.last_used_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  }
  entry.is_open = is_open(folder);
  read_about(&entry);
  return entry;
}

}  // namespace

std::filesystem::path cache_root() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const auto own = variable("WEFT_CACHE"); !own.empty()) return own;
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "weft/data";
  return variable("HOME") / ".cache/weft/data";
}

std::vector<CacheEntry> list_caches(const fs::path& root) {
  std::vector<CacheEntry> found;
  std::error_code bad;
  for (fs::directory_iterator at(root, bad), end; !bad && at != end; at.increment(bad)) {
    if (is_cache(*at)) found.push_back(describe(at->path()));
  }
  std::sort(found.begin(), found.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return a.last_used_ns != b.last_used_ns ? a.last_used_ns > b.last_used_ns : a.folder < b.folder;
  });
  return found;
}

void fail_cache(const fs::path& path, const char* doing) {
  throw RunError(
      fmt::format("token cache: cannot {} {}: {}", doing, path.string(), std::strerror(errno)),
      errno == ENOSPC || errno == EDQUOT
          ? "free space there, or set WEFT_CACHE to a folder on another disk"
          : "set WEFT_CACHE to a writable folder");
}

// Creates the folder and locks its `used`. Another process may have removed the cache meanwhile: a
// lock on a file that is no longer in the folder is useless, and the folder is recreated. (On a
// file system with unstable inode numbers the check eventually gives up.)
int open_cache_folder(const fs::path& folder) {
  int used = -1;
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    std::error_code bad;
    fs::create_directories(folder, bad);
    if (bad) {
      throw RunError(
          fmt::format("token cache: cannot create {}: {}", folder.string(), bad.message()),
          "set WEFT_CACHE to a writable folder");
    }
    if (used >= 0) ::close(used);
    used = open_plain_file(folder / kCacheUsed, O_RDWR | O_CREAT, 0644);
    if (used < 0 && errno == ENOENT) continue;  // the folder was removed meanwhile
    if (used < 0) fail_cache(folder / kCacheUsed, "open");
    if (::flock(used, LOCK_SH) != 0) break;  // locks are not supported everywhere
    if (is_named(used, folder / kCacheUsed)) break;
  }
  if (used >= 0) ::futimens(used, nullptr);  // used now
  return used;
}

bool is_named(int fd, const fs::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

Removal remove_cache(const fs::path& folder) {
  int fd = -1;
  const Removal refusal = lock_alone(folder, &fd);
  if (fd < 0) return refusal;
  std::error_code bad, first;
  for (const char* name : kFiles) {
    fs::remove(folder / name, bad);
    if (bad && !first) first = bad;
  }
  fs::remove(folder, bad);  // fails where something else is in it
  ::close(fd);
  return first ? Removal::kFailed : Removal::kDone;
}

int64_t max_cache_bytes() {
  const char* given = std::getenv("WEFT_CACHE_MAX");
  if (!given || !*given) return kDefaultMax;
  return static_cast<int64_t>(parse_byte_size(given, "WEFT_CACHE_MAX"));
}

int64_t trim_caches(const fs::path& root, const fs::path& keep, int64_t wanted_bytes,
                    int64_t max_bytes) {
  std::vector<CacheEntry> caches = list_caches(root);
  int64_t total = 0;
  for (const CacheEntry& c : caches)
    total += c.folder == keep ? std::max(wanted_bytes, c.bytes) : c.bytes;
  for (; total > max_bytes && !caches.empty(); caches.pop_back()) {
    const CacheEntry& oldest = caches.back();
    if (oldest.folder == keep || oldest.is_open) continue;
    if (remove_cache(oldest.folder) != Removal::kDone) continue;
    total -= oldest.bytes;
    log_info(
        "removed token cache {}{}{}, the least recently used: the limit is {:.3g} GB "
        "(WEFT_CACHE_MAX)",
        oldest.folder.string(), oldest.files.empty() ? "" : " of ", oldest.files,
        static_cast<double>(max_bytes) / 1e9);
  }
  return std::max<int64_t>(0, total - max_bytes);
}

}  // namespace weft
