// base/threads.cpp: one counter distributes the tasks; workers enter a round while it is open.
#include "base/threads.h"

#include <utility>

namespace weft {
namespace {

// Some microseconds: kernels of one step mostly follow each other faster than a wake-up takes.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void wait_for_change(std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

constexpr uint32_t kOpen = 0x80000000u;

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::run_raw(int64_t num_tasks, Raw raw, const void* fn) {
  if (num_tasks <= 0) return;
  if (workers_.empty() || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) raw(fn, i, 0);
    return;
  }
  // The last round is closed and empty, so nobody reads these fields now.
  raw_ = raw;
  fn_ = fn;
  num_tasks_ = num_tasks;
  next_.store(0, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  take_tasks(0);
  uint32_t inside = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while (inside != 0) {
    wait_for_change(state_, inside);
    inside = state_.load(std::memory_order_acquire);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::take_tasks(int thread) {
  try {
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= num_tasks_) return;
      raw_(fn_, task, thread);
    }
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

// True where this worker is now counted in an open round; it may be a later one than woke it.
bool ThreadPool::enter() {
  uint32_t seen = state_.load(std::memory_order_acquire);
  while (seen & kOpen) {
    if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    wait_for_change(round_, seen);
    seen = round_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (!enter()) continue;
    take_tasks(thread);
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_all();
  }
}

}  // namespace weft
