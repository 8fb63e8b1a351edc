// train/save_lane.h: a thread that runs jobs one after another beside the training loop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace weft {

class SaveLane {
 public:
  SaveLane() = default;
  ~SaveLane();  // waits for all jobs
  SaveLane(const SaveLane&) = delete;
  SaveLane& operator=(const SaveLane&) = delete;

  // Queued; returns its number. The thread starts with the first job; where none can be started the
  // job is done when this returns.
  int64_t post(std::function<void()> job);
  // Until the job of that number is done. Throws what a job threw; those after it were skipped.
  void wait_for(int64_t number);
  // The same for at most that long: whether it is done.
  [[nodiscard]] bool wait_for(int64_t number, std::chrono::milliseconds most);
  void wait() { wait_for(num_posted_); }  // for all

 private:
  bool start();  // whether there is a thread
  void work();
  void run_first(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  int64_t num_posted_ = 0, num_done_ = 0;
  bool is_ending_ = false, can_start_ = true;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace weft
