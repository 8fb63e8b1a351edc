// tensor/cuda/streams.h: a GPU's two queues as streams, and how the host waits for them.
#pragma once

#include <chrono>
#include <thread>
#include <utility>

#include "tensor/cuda/check.h"
#include "tensor/device.h"

namespace weft::cuda {

// A device's two streams, which of them is in use, and how the host waits for them.
class Streams {
 public:
  Streams() {
    for (cudaStream_t& s : streams_)
      check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Streams() {
    for (const cudaStream_t s : streams_) cudaStreamDestroy(s);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  cudaStream_t in_use() const { return streams_[in_use_]; }
  cudaStream_t of(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }
  void use(Queue queue) { in_use_ = static_cast<size_t>(queue); }
  void set_watch(Device::Watch watch) {
    watch_ = std::move(watch);
    watcher_ = std::this_thread::get_id();
  }

  void wait_for(Queue queue, const char* what) const {
    if (!is_watched()) return check(cudaStreamSynchronize(of(queue)), what);
    poll([&] { return cudaStreamQuery(of(queue)); }, what);
  }
  void wait_for(cudaEvent_t event, const char* what) const {
    if (!is_watched()) return check(cudaEventSynchronize(event), what);
    poll([&] { return cudaEventQuery(event); }, what);
  }

 private:
  bool is_watched() const { return watch_ && watcher_ == std::this_thread::get_id(); }

  // Most waits are short: spin first, then sleep briefly between polls.
  template <typename Query>
  void poll(const Query& query, const char* what) const {
    using Clock = std::chrono::steady_clock;
    constexpr auto kAwake = std::chrono::microseconds(200), kNap = std::chrono::microseconds(50);
    constexpr auto kBetween = std::chrono::milliseconds(5);
    const auto begun = Clock::now();
    for (auto warned = begun;;) {
      const cudaError_t error = query();
      if (error != cudaErrorNotReady) return check(error, what);
      const auto now = Clock::now();
      if (now - begun > kAwake) std::this_thread::sleep_for(kNap);
      if (now - warned < kBetween) continue;
      warned = now;
      watch_(std::chrono::duration_cast<std::chrono::milliseconds>(now - begun).count());
    }
  }

  cudaStream_t streams_[2] = {};
  size_t in_use_ = 0;
  Device::Watch watch_;
  std::thread::id watcher_;
};

}  // namespace weft::cuda
