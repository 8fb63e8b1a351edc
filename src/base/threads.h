// base/threads.h: a fixed set of worker threads that share out numbered tasks.
//
// run() allocates nothing and takes no lock: workers spin briefly, then sleep on a futex
// (std::atomic::wait). Which thread takes a task never changes a result: a task writes only its own
// output. The caller runs tasks too and waits only for workers that took part: on a busy machine a
// worker that has not woken up yet delays nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // the caller is one of them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // fn(task, thread) for every task in [0, num_tasks); thread in [0, num_threads). Returns when
  // all are done; the first exception of any thread is thrown here.
  template <typename Fn>
  void run(int64_t num_tasks, const Fn& fn) {
    run_raw(
        num_tasks,
        [](const void* f, int64_t task, int thread) { (*static_cast<const Fn*>(f))(task, thread); },
        &fn);
  }

 private:
  using Raw = void (*)(const void*, int64_t, int);
  void run_raw(int64_t num_tasks, Raw raw, const void* fn);
  void work(int thread);
  void take_tasks(int thread);
  bool enter();

  std::vector<std::thread> workers_;
  Raw raw_ = nullptr;
  const void* fn_ = nullptr;
  int64_t num_tasks_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<uint32_t> round_{0};  // raised to wake the workers
  std::atomic<uint32_t> state_{0};  // kOpen while a round may be entered, plus who is inside
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace weft
