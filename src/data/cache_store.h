// data/cache_store.h: the token caches of this machine: what is there, and which go first.
//
// A cache is a folder of its own, named by 16 hexadecimal digits. Every process that has it open
// holds its file `used` locked (shared), and sets that file's time when it opens it. Who removes a
// cache locks it alone first: one that is open is never removed, and one that is about to be opened
// is opened anew. Other files and folders are left alone.
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

// False where a process has it open, or where the system refuses.
bool remove_cache(const std::filesystem::path& folder);

// WEFT_CACHE_MAX ("20GB"), or 50 GB. UserError where it is no size.
int64_t max_cache_bytes();

// Removes those that were not used for longest until all, with `wanted_bytes` that are about to be
// written, are within the bound; never `keep`, nor what is open.
void trim_caches(const std::filesystem::path& root, const std::filesystem::path& keep,
                 int64_t wanted_bytes, int64_t max_bytes);

}  // namespace weft
