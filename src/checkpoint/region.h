// checkpoint/region.h: the part of a logical tensor that a slice holds, and what two parts share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tensor/shape.h"

namespace weft {

// A box of the logical tensor, and of that box, in row-major order, the elements
// [flat_begin, flat_end). A buffer of the region holds just those, without gaps.
struct Region {
  Shape offset, extent;
  int64_t flat_begin = 0, flat_end = 0;
  int64_t size() const { return flat_end - flat_begin; }
};

// What is wrong where the region is not within a tensor of that shape; else "".
std::string region_fault(const Region& region, const Shape& shape);

// fn(from, to, count) for every run of elements that both hold: `from` is the run's offset in a
// buffer of a, `to` in one of b. Runs are maximal.
using CommonRun = std::function<void(int64_t from, int64_t to, int64_t count)>;
void for_each_common_run(const Region& a, const Region& b, const CommonRun& fn);

bool regions_overlap(const Region& a, const Region& b);

}  // namespace weft
