// data/cached_row.h: a row as returned by the token cache.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct CachedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_label;
  int64_t num_source = 0;
  int32_t num_nulls = 0;
  bool dropped = false, truncated = false, repaired = false;
  bool source_cut = false, target_cut = false;  // of one that was truncated (Example)
  bool has_label = false;                       // any token is a label; false for a dropped row
};

}  // namespace weft
