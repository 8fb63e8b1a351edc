// train/detachable_job.cpp: a future that is looked at every few milliseconds.
#include "train/detachable_job.h"

#include <chrono>
#include <utility>

namespace weft {

bool DetachableJob::run(std::function<void()> job, const std::function<bool()>& is_left) {
  if (!wait(is_left)) return false;
  job_ = std::async(std::launch::async, std::move(job));
  if (!wait(is_left)) return false;
  job_.get();
  return true;
}

bool DetachableJob::wait(const std::function<bool()>& is_left) const {
  if (!job_.valid()) return true;
  while (job_.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
    if (is_left()) return false;
  }
  return true;
}

void DetachableJob::finish() {
  if (job_.valid()) job_.wait();
}

}  // namespace weft
