// kernel/cpu/level/gemm_line_block.h: lines of B that a product of a few rows takes together.
#pragma once

#include <cstdint>

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr int kBlockLines = 8;

// Rows are too short for the machine's own prefetcher. So while a block is in use, as much memory
// as it has is fetched from `later` on into the L2 cache, and each line two cache lines ahead into
// the L1 cache, at its end the start of the line that takes its place.
template <typename T>
struct LineBlock {
  const T* line[kBlockLines];
  const T* later;
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
