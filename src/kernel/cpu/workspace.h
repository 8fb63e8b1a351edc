// kernel/cpu/workspace.h: what the CPU kernels share, compiled once for all instruction levels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// BugError unless a kernel got the scratch that it needs.
void check_workspace(const char* op, size_t wanted, size_t got);

// Sorts n keys in ascending order, without allocating.
void sort_keys(uint64_t* keys, int64_t n);

}  // namespace weft
