// net/futex.h: a counter in shared memory that processes wait on.
//
// The waiter count avoids the system call where nobody sleeps. A killed waiter leaves the count too
// high forever: that costs calls, not correctness.
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

// Release: earlier writes are visible to those who see the target reached.
void set_and_wake(SharedWord& word, uint32_t value);

// Sleeps until the word is set again or the time has passed; may return early.
void sleep_on(SharedWord& word, uint32_t target, int64_t timeout_ms);

// Spins for some microseconds; returns whether the target was reached.
bool spin_on(const SharedWord& word, uint32_t target);

}  // namespace weft
