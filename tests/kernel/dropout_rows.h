// tests/kernel/dropout_rows.h: four rows of a batch, by which dropout draws.
#pragma once

#include "tests/kernel/tested.h"

namespace weft {

// (B, 2): epoch and row; never neighbours, one of them beyond 32 bits.
inline const TestVector<int64_t>& dropout_rows() {
  static const TestVector<int64_t> list = {1, 17, 1, (int64_t{3} << 32) + 5, 2, 17, 9, 0};
  return list;
}

}  // namespace weft
