// tests/allocation/counter.h: counts this process's allocations between two calls.
#pragma once

#include <cstdint>

namespace weft::testing {

// All threads together. Counting is off until start.
void start_counting();
int64_t stop_counting();  // calls of malloc and its kin, and of operator new, since start

}  // namespace weft::testing
