// base/new_threads.h: numbered tasks that mostly wait for a disk, on threads of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace weft {

// fn(task) for every task in [0, num_tasks), on the caller and up to num_threads - 1 new threads.
// Returns when all have ended; after an error no further task is started, and the first is thrown.
template <typename Fn>
void run_on_new_threads(size_t num_threads, size_t num_tasks, const Fn& fn) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t task = next++; task < num_tasks; task = next++) {
      try {
        fn(task);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = num_tasks;
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(num_threads);  // before a thread runs that nobody would join
  try {
    for (size_t i = 1; i < num_threads && i < num_tasks; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {  // a limit on threads: those that exist suffice
  } catch (const std::bad_alloc&) {
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace weft
