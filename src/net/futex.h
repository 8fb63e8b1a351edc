// net/futex.h: a counter in shared memory that processes wait on.
//
// The waiters' count spares the system call where nobody sleeps. A waiter that is killed leaves the
// count too high for good: that costs calls, not correctness.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

struct alignas(64) SharedWord {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> waiters;

  // Counts wrap; targets are never 2^31 apart.
  bool has_reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};

// Everything written before is seen by those who find the word reached.
void set_and_wake(SharedWord& word, uint32_t value);

// Sleeps until the word is set again or the time has passed; may return early.
void sleep_on(SharedWord& word, uint32_t target, int64_t timeout_ms);

// For some microseconds; whether the target was reached.
bool spin_on(const SharedWord& word, uint32_t target);

}  // namespace weft
