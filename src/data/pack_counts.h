// data/pack_counts.h: the lengths of rows, a block at a time, and what `pack` made of them, kept
// beside the tokens.
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

// Reads the table of a block once for all of its rows. For one thread.
class RowLengths {
 public:
  explicit RowLengths(TokenCache& cache) : cache_(cache) {}
  RowLength of(int64_t row);

 private:
  static constexpr size_t kMostTables = 1024;  // more than a window of the order touches
  TokenCache& cache_;
  std::unordered_map<int64_t, std::vector<RowLength>> tables_;
};

// Counts of earlier starts, by all that they depend on besides the tokens; empty folder: none are
// kept. A file that is damaged or cannot be written only costs the time to count again.
std::optional<PackSize> find_pack_size(const std::filesystem::path& folder, const std::string& key);
void keep_pack_size(const std::filesystem::path& folder, const std::string& key,
                    const PackSize& size);

}  // namespace weft
