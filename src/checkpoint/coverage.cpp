// checkpoint/coverage.cpp: counts elements that regions share.
#include "checkpoint/coverage.h"

#include <fmt/core.h>

#include <algorithm>

namespace weft {

Coverage::Coverage(const std::vector<Slice>& wanted) {
  for (const Slice& slice : wanted) {
    wanted_.push_back({slice.name, region_of(slice)});
    num_missing_ += wanted_.back().region.size();
  }
  std::sort(wanted_.begin(), wanted_.end(),
            [](const Wanted& a, const Wanted& b) { return a.name < b.name; });
}

void Coverage::add(const StoredTensors& part) {
  for (Wanted& want : wanted_) {
    const auto found = part.find(want.name);
    if (found == part.end()) continue;
    for (const StoredSlice& slice : found->second.slices) {
      // A forged index may have another number of dims.
      if (slice.region.offset.size() != want.region.offset.size()) continue;
      for_each_common_run(slice.region, want.region, [&](int64_t, int64_t, int64_t count) {
        want.held += count;
        num_missing_ -= count;
      });
    }
  }
}

std::string Coverage::fault() const {
  for (const Wanted& want : wanted_) {
    if (want.held != want.region.size())
      return fmt::format("tensor \"{}\": {} elements are there, {} are wanted", want.name,
                         want.held, want.region.size());
  }
  return "";
}

}  // namespace weft
