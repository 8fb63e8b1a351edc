// data/cache_store.h: the token caches of this machine: listing and eviction.
//
// A cache is a folder named by 16 hexadecimal digits. Every process that has it open holds its file
// `used` locked (shared), and sets that file's time when it opens it. To remove a cache, a process
// first takes an exclusive lock: an open one is never removed, and one about to be opened is
// recreated. Whoever gets a lock checks whether the file is still the one of that name: another
// process may have removed it meanwhile. Other files and folders are left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

inline constexpr const char* kCacheUsed = "used";      // lock of processes that have the cache open
inline constexpr const char* kCacheAbout = "about";    // JSON: the inputs of the cache
inline constexpr const char* kCacheCounts = "packed";  // sizes of packed epochs (pack_counts.h)

std::filesystem::path cache_root();  // WEFT_CACHE, else the user's cache folder / weft / data

struct CacheEntry {
  std::filesystem::path folder;
  int64_t bytes = 0;         // on the disk
  int64_t last_used_ns = 0;  // since 1970: when it was opened last
  bool is_open = false;      // by some process
  std::string files;         // "wiki.txt and 3 more"; empty: unknown
  int64_t num_rows = 0;
};

// Most recently used first. Empty where the folder does not exist.
std::vector<CacheEntry> list_caches(const std::filesystem::path& root);

enum class Removal { kDone, kInUse, kFailed };
// kDone also where another process removed it; kInUse where a process has it open, or is removing
// or rebuilding it; kFailed on a system error.
Removal remove_cache(const std::filesystem::path& folder);

// Creates the folder and updates the time of `used`. Returns a descriptor that holds a lock on
// `used`, or -1 where locks are not supported. RunError where the folder cannot be written.
int open_cache_folder(const std::filesystem::path& folder);

// Throws RunError with the reason from errno and a hint.
[[noreturn]] void fail_cache(const std::filesystem::path& path, const char* doing);

// Whether the open file is still the one of that name: a lock on a deleted one protects nothing.
bool is_named(int fd, const std::filesystem::path& path);

// WEFT_CACHE_MAX ("20GB"), or 50 GB. UserError where it is not a size.
int64_t max_cache_bytes();

// Removes the least recently used until all are within the limit; never `keep`, nor open ones.
// `keep` counts as `wanted_bytes` where it will grow to that. Returns by how many bytes the rest
// exceeds the limit.
int64_t trim_caches(const std::filesystem::path& root, const std::filesystem::path& keep,
                    int64_t wanted_bytes, int64_t max_bytes);

}  // namespace weft
