// train/save_lane.cpp: jobs in order; after a failed one the rest is skipped.
#include "train/save_lane.h"

#include <utility>

namespace weft {

SaveLane::~SaveLane() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t SaveLane::post(std::function<void()> job) {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++num_posted_;
}

void SaveLane::wait_for(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ >= number; });
  if (error_) std::rethrow_exception(error_);
}

void SaveLane::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    if (!error_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        job();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
    }
    ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace weft
