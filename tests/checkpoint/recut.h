// tests/checkpoint/recut.h: tensors cut as many ranks would cut them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace weft::testing {

// Element i of every tensor is a function of i, so that a misplaced one is detected.
inline std::vector<float> numbered(const Shape& shape, float first = 0) {
  std::vector<float> data(static_cast<size_t>(num_elements(shape)));
  for (size_t i = 0; i < data.size(); ++i) data[i] = first + static_cast<float>(i);
  return data;
}

// Where to cut [0, n) into `parts` pieces, some possibly empty: parts + 1 positions.
inline std::vector<int64_t> random_cuts(int64_t n, int parts, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, n};
  for (int i = 1; i < parts; ++i) {
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, n)(random));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Cuts a tensor along `dim` into boxes (tp), each box's flat order into ranges (dp); rank =
// dp_rank * tp + tp_rank. The slices have no data yet.
inline std::vector<Slice> cut(const Slice& whole, size_t dim, const std::vector<int64_t>& box_cuts,
                              int dp, std::mt19937& random) {
  const size_t tp = box_cuts.size() - 1;
  std::vector<Slice> slices(tp * static_cast<size_t>(dp), whole);
  for (size_t t = 0; t < tp; ++t) {
    Slice box = whole;
    if (!whole.shape.empty()) {
      box.offset[dim] = box_cuts[t];
      box.extent[dim] = box_cuts[t + 1] - box_cuts[t];
    }
    const std::vector<int64_t> flat = random_cuts(num_elements(box.extent), dp, random);
    for (size_t d = 0; d < static_cast<size_t>(dp); ++d) {
      Slice& s = slices[d * tp + t] = box;
      s.flat_begin = flat[d];
      s.flat_end = flat[d + 1];
    }
  }
  return slices;
}

// The slice's elements, picked one by one from the whole tensor: the slow and obvious way.
inline std::vector<float> pick(const Slice& s, const std::vector<float>& whole) {
  std::vector<float> out;
  const Region region = region_of(s);
  for (int64_t flat = region.flat_begin; flat < region.flat_end; ++flat) {
    int64_t rest = flat, at = 0, stride = 1;
    for (size_t i = s.shape.size(); i-- > 0;) {
      at += (s.offset[i] + rest % s.extent[i]) * stride;
      rest /= s.extent[i];
      stride *= s.shape[i];
    }
    out.push_back(whole[static_cast<size_t>(at)]);
  }
  return out;
}

}  // namespace weft::testing
