// exec/lane.cpp: two counters; each side sleeps on the other's.
#include "exec/lane.h"

namespace weft {

Lane::~Lane() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  posted_.fetch_add(1, std::memory_order_release);
  posted_.notify_all();
  thread_.join();
}

void Lane::begin(const std::vector<std::function<void()>>* calls) {
  if (calls->empty()) return;
  calls_ = calls;
  begun_ = posted_.load();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void Lane::post() {
  posted_.fetch_add(1, std::memory_order_release);
  posted_.notify_one();
}

void Lane::wait(int number) {
  const uint32_t target = begun_ + static_cast<uint32_t>(number);
  for (;;) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
    if (static_cast<int32_t>(done - target) >= 0) return;
    done_.wait(done, std::memory_order_acquire);
  }
}

void Lane::drain() {
  for (uint32_t done = done_.load(); done != posted_.load(); done = done_.load()) done_.wait(done);
  failed_.store(false);
  error_ = nullptr;
}

void Lane::work() {
  for (;;) {
    const uint32_t done = done_.load(std::memory_order_relaxed);
    posted_.wait(done, std::memory_order_acquire);
    if (stop_.load()) return;
    try {
      if (!failed_.load(std::memory_order_relaxed)) (*calls_)[done - begun_]();
    } catch (...) {
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
    done_.store(done + 1, std::memory_order_release);
    done_.notify_all();
  }
}

}  // namespace weft
