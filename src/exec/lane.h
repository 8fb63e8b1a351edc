// exec/lane.h: a second thread that runs the calls posted to it, in order.
//
// Neither posting nor waiting allocates. A call's exception is thrown at the next wait; the calls
// after it are skipped.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace weft {

class Lane {
 public:
  Lane() = default;
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The calls of the next list, in order. Only while nothing is in flight.
  void begin(const std::vector<std::function<void()>>* calls);
  void post();            // the next of them may start
  void wait(int number);  // until this many of them are done
  // Until nothing is in flight, whatever failed: then the next list may begin.
  void drain();

 private:
  void work();

  const std::vector<std::function<void()>>* calls_ = nullptr;
  uint32_t begun_ = 0;  // calls posted before this list
  std::atomic<uint32_t> posted_{0}, done_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace weft
