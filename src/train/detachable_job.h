// train/detachable_job.h: work on a thread of its own, which who waits for it may leave behind.
#pragma once

#include <exception>
#include <functional>
#include <future>

namespace weft {

// One job at a time. Called by one thread at a time.
class DetachableJob {
 public:
  DetachableJob() = default;
  ~DetachableJob() { finish(); }
  DetachableJob(const DetachableJob&) = delete;
  DetachableJob& operator=(const DetachableJob&) = delete;

  // After a job that was left behind, whose error nobody wants to know any more, does this one.
  // Throws what it throws. False where `is_left` became true, which is asked often: it goes on.
  bool run(std::function<void()> job, const std::function<bool()>& is_left);
  // Waits for a job that was left behind; false: `is_left` became true.
  bool wait(const std::function<bool()>& is_left) const;
  void finish();  // the same, however long it takes

 private:
  std::future<void> job_;
};

}  // namespace weft
