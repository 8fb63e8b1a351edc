// kernel/cpu/workspace.h: what the CPU kernels share that no instruction level compiles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// BugError unless a kernel was given the scratch that it asked for.
void check_workspace(const char* op, size_t wanted, size_t got);

// Sorts n keys upwards. No memory is taken.
void sort_keys(uint64_t* keys, int64_t n);

}  // namespace weft
