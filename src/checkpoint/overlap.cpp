// checkpoint/overlap.cpp: sweeps over intervals, and compares only regions whose intervals meet.
//
// Regions that share an element also share its coordinate along each dim, and its place in the
// row-major order: so many intervals of a region are known, and in any of them regions that overlap
// have intervals that do. The one in which the fewest meet is swept.
#include "checkpoint/overlap.h"

#include <algorithm>
#include <queue>

namespace weft {
namespace {

struct Interval {
  int64_t begin, end;
  size_t region;
};
using Intervals = std::vector<Interval>;  // by begin

// The place in the tensor's row-major order of element `flat` of the region's box.
int64_t place_of(const Region& r, int64_t flat, const Shape& shape) {
  int64_t place = 0, stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    place += (r.offset[i] + flat % r.extent[i]) * stride;
    flat /= r.extent[i];
    stride *= shape[i];
  }
  return place;
}

template <typename Of>
Intervals intervals(const std::vector<const Region*>& regions, const Of& of) {
  Intervals list;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i]->size() <= 0) continue;
    const auto [begin, end] = of(*regions[i]);
    list.push_back({begin, end, i});
  }
  std::sort(list.begin(), list.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return list;
}

// How many pairs meet.
size_t count_meetings(const Intervals& list) {
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ends;
  size_t meetings = 0;
  for (const Interval& i : list) {
    while (!ends.empty() && ends.top() <= i.begin) ends.pop();
    meetings += ends.size();
    ends.push(i.end);
  }
  return meetings;
}

}  // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<const Region*>& regions,
                                                      const Shape& shape) {
  Intervals best = intervals(regions, [&](const Region& r) {
    return std::pair(place_of(r, r.flat_begin, shape), place_of(r, r.flat_end - 1, shape) + 1);
  });
  size_t fewest = count_meetings(best);
  for (size_t d = 0; d < shape.size() && fewest > 0; ++d) {
    Intervals other = intervals(regions, [&](const Region& r) {
      return std::pair(r.offset[d], r.offset[d] + r.extent[d]);
    });
    const size_t meetings = count_meetings(other);
    if (meetings >= fewest) continue;
    fewest = meetings;
    best = std::move(other);
  }
  std::vector<Interval> open;
  for (const Interval& i : best) {
    std::erase_if(open, [&](const Interval& o) { return o.end <= i.begin; });
    for (const Interval& o : open) {
      if (regions_overlap(*regions[i.region], *regions[o.region]))
        return std::minmax(i.region, o.region);
    }
    open.push_back(i);
  }
  return std::nullopt;
}

}  // namespace weft
