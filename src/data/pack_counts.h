// data/pack_counts.h: reads row lengths block by block, and caches how many sequences `pack` makes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/batches.h"
#include "data/token_cache.h"

namespace weft {

// Reads the table of a block once for all of its rows. Not thread-safe.
class RowLengths {
 public:
  explicit RowLengths(TokenCache& cache) : cache_(cache) {}
  RowLength of(int64_t row);

 private:
  static constexpr size_t kMostTables = 1024;  // more than a window of the order touches
  TokenCache& cache_;
  std::unordered_map<int64_t, std::vector<RowLength>> tables_;
};

// Counts stored by earlier starts. The key holds everything they depend on except the tokens. An
// empty folder name: nothing is stored. A damaged or unwritable file only costs a recount.
std::optional<PackSize> find_pack_size(const std::filesystem::path& folder, const std::string& key);
void keep_pack_size(const std::filesystem::path& folder, const std::string& key,
                    const PackSize& size);

}  // namespace weft
