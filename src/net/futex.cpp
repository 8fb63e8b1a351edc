// net/futex.cpp: waits and wakes across processes.
#include "net/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace weft {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

// Longer than a wake-up takes (5 to 50 us), so we do not sleep when a peer is about to arrive.
constexpr auto kSpin = std::chrono::microseconds(60);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void set_and_wake(SharedWord& word, uint32_t value) {
  word.value.store(value, std::memory_order_seq_cst);
  if (word.waiters.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &word.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(SharedWord& word, uint32_t target, int64_t timeout_ms) {
  word.waiters.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = word.value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    timespec timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000};
    ::syscall(SYS_futex, &word.value, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
  word.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

bool spin_on(const SharedWord& word, uint32_t target) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (word.has_reached(target)) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return word.has_reached(target);
}

}  // namespace weft
