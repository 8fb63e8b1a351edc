// data/cache_store.h: the token caches of this machine: what is there, and which go first.
//
// A cache is a folder of its own, named by 16 hexadecimal digits. Every process that has it open
// holds its file `used` locked (shared), and sets that file's time when it opens it. Who removes a
// cache locks it alone first: one that is open is never removed, and one that is about to be opened
// is opened anew. Whoever gets a lock looks whether the file is still the one of that name: another
// may have removed it while the lock was waited for. Other files and folders are left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

inline constexpr const char* kCacheUsed = "used";    // lock of those who have it open
inline constexpr const char* kCacheAbout = "about";  // JSON: what it was made of

struct CacheEntry {
  std::filesystem::path folder;
  int64_t bytes = 0;         // on the disk
  int64_t last_used_ns = 0;  // since 1970: when it was opened last
  bool is_open = false;      // by some process
  std::string files;         // "wiki.txt and 3 more"; empty: not known
  int64_t num_rows = 0;
};

// Last used first. A folder that is not there holds none.
std::vector<CacheEntry> list_caches(const std::filesystem::path& root);

enum class Removal { kDone, kInUse, kFailed };
// kDone also where somebody else removed it; kInUse where a process has it open, or is removing it
// or making it anew; kFailed where the system refuses.
Removal remove_cache(const std::filesystem::path& folder);

// Whether the open file is still the one of that name: a lock on another one locks nothing.
bool is_named(int fd, const std::filesystem::path& path);

// WEFT_CACHE_MAX ("20GB"), or 50 GB. UserError where it is no size.
int64_t max_cache_bytes();

// Removes those that were not used for longest until all are within the bound; never `keep`, nor
// what is open. `keep` counts as `wanted_bytes` where it will have more than it has now. Returns by
// how many bytes all that is left is over the bound.
int64_t trim_caches(const std::filesystem::path& root, const std::filesystem::path& keep,
                    int64_t wanted_bytes, int64_t max_bytes);

}  // namespace weft
