// tests/comm/tree.h: the sum over ranks as comm.h defines it, one element at a time.
#pragma once

#include <cstdint>
#include <string>

#include "comm/comm.h"

namespace weft::testing {

// Level by level: neighbours are joined, one without a neighbour is passed up unchanged.
template <typename T, typename Join>
T join_levels(T* values, int n, const Join& join) {
  while (n > 1) {
    for (int i = 0; i + 1 < n; i += 2) values[i / 2] = join(values[i], values[i + 1]);
    if (n % 2 == 1) values[n / 2] = values[n - 1];
    n = (n + 1) / 2;
  }
  return values[0];
}

inline constexpr Dtype kReduced[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF64,
                                     Dtype::kI64};

// Element i of `rank`'s input, as bits in the first dtype_bytes bytes.
uint64_t input_bits(Dtype dtype, uint64_t seed, int rank, int64_t i);
// The same element after the reduction over n ranks.
uint64_t reduced_bits(Dtype dtype, Reduce op, uint64_t seed, int n, int64_t i);

void fill(char* data, Dtype dtype, uint64_t seed, int rank, int64_t first, int64_t count);
// "" where data holds the reduced elements [first, first + count), else the first that differs.
std::string compare_reduced(const char* data, Dtype dtype, Reduce op, uint64_t seed, int n,
                            int64_t first, int64_t count);

}  // namespace weft::testing
