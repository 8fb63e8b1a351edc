// checkpoint/region.cpp: intersecting boxes and flat ranges of boxes.
//
// Adjacent dims that both regions cut in the same way are folded into one first: along the folded
// dim a run is contiguous in both. Then the common box is walked row by row, a row being a run
// along the last dim, and each row is clipped to the two flat ranges.
#include "checkpoint/region.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace weft {
namespace {

struct Dim {
  int64_t a_offset, a_extent, b_offset, b_extent;
};

// A scalar counts as one dim of extent 1.
std::vector<Dim> folded_dims(const Region& a, const Region& b) {
  std::vector<Dim> dims = {{0, 1, 0, 1}};
  for (size_t i = 0; i < a.offset.size(); ++i) {
    const Dim next{a.offset[i], a.extent[i], b.offset[i], b.extent[i]};
    Dim& last = dims.back();
    const bool alike = next.a_offset == next.b_offset && next.a_extent == next.b_extent;
    if (alike) {
      last = {last.a_offset * next.a_extent, last.a_extent * next.a_extent,
              last.b_offset * next.b_extent, last.b_extent * next.b_extent};
    } else if (last.a_offset == 0 && last.a_extent == 1 && last.b_offset == 0 &&
               last.b_extent == 1) {
      last = next;
    } else {
      dims.push_back(next);
    }
  }
  return dims;
}

struct Walk {
  std::vector<int64_t> begin, end;          // the common box, logical coordinates
  std::vector<int64_t> a_stride, b_stride;  // elements of each region's box
};

// Rows of the first dim outside a flat range are excluded from the common box.
Walk plan_walk(const std::vector<Dim>& dims, const Region& a, const Region& b) {
  const size_t n = dims.size();
  Walk w{std::vector<int64_t>(n), std::vector<int64_t>(n), std::vector<int64_t>(n, 1),
         std::vector<int64_t>(n, 1)};
  for (size_t i = n; i-- > 0;) {
    const Dim& d = dims[i];
    w.begin[i] = std::max(d.a_offset, d.b_offset);
    w.end[i] = std::min(d.a_offset + d.a_extent, d.b_offset + d.b_extent);
    if (i + 1 < n) {
      w.a_stride[i] = w.a_stride[i + 1] * dims[i + 1].a_extent;
      w.b_stride[i] = w.b_stride[i + 1] * dims[i + 1].b_extent;
    }
  }
  auto reach = [&](const Region& r, int64_t offset, int64_t stride) {
    if (stride == 0) return;
    w.begin[0] = std::max(w.begin[0], offset + r.flat_begin / stride);
    w.end[0] = std::min(w.end[0], offset + (r.flat_end + stride - 1) / stride);
  };
  reach(a, dims[0].a_offset, w.a_stride[0]);
  reach(b, dims[0].b_offset, w.b_stride[0]);
  return w;
}

// Stops where fn returns false.
template <typename Fn>
void walk_runs(const Region& a, const Region& b, const Fn& fn) {
  if (a.size() <= 0 || b.size() <= 0) return;
  const std::vector<Dim> dims = folded_dims(a, b);
  const Walk w = plan_walk(dims, a, b);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (w.begin[i] >= w.end[i]) return;
  }
  const size_t last = dims.size() - 1;
  const int64_t length = w.end[last] - w.begin[last];
  std::vector<int64_t> at = w.begin;
  for (;;) {
    int64_t a_at = 0, b_at = 0;  // of the row's first element, in each region's box
    for (size_t i = 0; i <= last; ++i) {
      a_at += (at[i] - dims[i].a_offset) * w.a_stride[i];
      b_at += (at[i] - dims[i].b_offset) * w.b_stride[i];
    }
    const int64_t from = std::max({int64_t{0}, a.flat_begin - a_at, b.flat_begin - b_at});
    const int64_t to = std::min({length, a.flat_end - a_at, b.flat_end - b_at});
    if (from < to && !fn(a_at + from - a.flat_begin, b_at + from - b.flat_begin, to - from)) return;
    size_t i = last;
    while (i > 0 && ++at[i - 1] == w.end[i - 1]) {
      at[i - 1] = w.begin[i - 1];
      --i;
    }
    if (i == 0) return;
  }
}

}  // namespace

std::string region_fault(const Region& r, const Shape& shape) {
  if (r.offset.size() != shape.size() || r.extent.size() != shape.size()) {
    return fmt::format("a box of {} dims in a tensor of {}", r.extent.size(), shape.size());
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (r.offset[i] < 0 || r.extent[i] < 0 || r.offset[i] > shape[i] ||
        r.extent[i] > shape[i] - r.offset[i]) {
      return fmt::format("a box at {} of extent {} in a tensor of {}", to_string(r.offset),
                         to_string(r.extent), to_string(shape));
    }
  }
  const int64_t elements = num_elements(r.extent);
  if (r.flat_begin < 0 || r.flat_begin > r.flat_end || r.flat_end > elements) {
    return fmt::format("elements {} to {} of a box of {}", r.flat_begin, r.flat_end, elements);
  }
  return "";
}

void for_each_common_run(const Region& a, const Region& b, const CommonRun& fn) {
  walk_runs(a, b, [&](int64_t from, int64_t to, int64_t count) {
    fn(from, to, count);
    return true;
  });
}

bool regions_overlap(const Region& a, const Region& b) {
  // Most pairs have disjoint boxes, or are flat ranges of one box.
  if (a.offset == b.offset && a.extent == b.extent) {
    return std::max(a.flat_begin, b.flat_begin) < std::min(a.flat_end, b.flat_end);
  }
  for (size_t i = 0; i < a.offset.size(); ++i) {
    if (a.offset[i] >= b.offset[i] + b.extent[i] || b.offset[i] >= a.offset[i] + a.extent[i]) {
      return false;
    }
  }
  bool any = false;
  walk_runs(a, b, [&](int64_t, int64_t, int64_t) {
    any = true;
    return false;
  });
  return any;
}

}  // namespace weft
