// tests/kernel/fewer_types.h: cases of several types, thinned where tests are slow.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/kernel/common.h"

namespace weft {

// Under ASan emulated kernels take ten times as long: each case runs there with one type, in turn.
template <typename T>
std::vector<T> with_fewer_types_under_asan(const std::vector<T>& list) {
#ifdef __SANITIZE_ADDRESS__
  std::vector<T> kept;
  std::vector<size_t> seen(std::size(kAllTypes));
  for (const T& c : list) {
    const auto type = static_cast<size_t>(
        std::find(std::begin(kAllTypes), std::end(kAllTypes), c.dtype) - std::begin(kAllTypes));
    if (seen.at(type)++ % seen.size() == type) kept.push_back(c);
  }
  return kept;
#else
  return list;
#endif
}

}  // namespace weft
