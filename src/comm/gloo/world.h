// comm/gloo/world.h: what the groups of one rank share: a Gloo device, the store, the abort signal.
//
// A thread waits for the key "abort" in the store. Any rank may set it; the store sets it on behalf
// of a rank that vanished without farewell. So the reason reaches every rank, whatever it waits
// for.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "comm/comm.h"
#include "comm/gloo/gloo.h"
#include "net/store.h"

namespace gloo::transport {
class Device;
}

namespace weft {

// Groups whose waits an abort ends.
class GlooWaiter {
 public:
  virtual ~GlooWaiter() = default;
  virtual void wake() = 0;
};

class GlooWorld {
 public:
  explicit GlooWorld(const GlooOptions& options);
  ~GlooWorld();
  GlooWorld(const GlooWorld&) = delete;
  GlooWorld& operator=(const GlooWorld&) = delete;

  const GlooOptions& options() const { return options_; }
  std::shared_ptr<gloo::transport::Device>& device() { return device_; }
  StoreClient& store() { return *clients_[0]; }
  int64_t deadline_ms() const { return num_patient_ > 0 ? kPatientMs : deadline_ms_.load(); }
  void set_deadline_ms(int64_t deadline_ms) { deadline_ms_ = deadline_ms; }
  void add_no_deadline(int change) { num_patient_ += change; }

  // On all ranks; the first reason is kept.
  void abort(const std::string& reason, bool has_waited = false);
  bool is_aborted() const { return is_aborted_; }
  void check_abort(const std::string& what);
  // Whether a reason arrives within the time: a broken connection is seldom the root cause.
  bool wait_for_abort(int64_t timeout_ms);

  void add(GlooWaiter* waiter);
  void remove(GlooWaiter* waiter);

 private:
  StoreClient& watched() { return *clients_[1]; }
  void watch() noexcept;
  bool abort_here(const std::string& reason, bool has_waited = false);

  GlooOptions options_;
  std::array<std::unique_ptr<StoreClient>, 2> clients_;  // to find others; for the watcher
  std::shared_ptr<gloo::transport::Device> device_;
  std::atomic<int64_t> deadline_ms_;
  std::atomic<int> num_patient_{0};
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::condition_variable aborted_;
  std::string reason_;
  std::set<GlooWaiter*> waiters_;
  std::thread watcher_;
};

}  // namespace weft
