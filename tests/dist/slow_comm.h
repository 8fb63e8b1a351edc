// tests/dist/slow_comm.h: a group in which every call takes some milliseconds longer.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "comm/comm.h"

namespace weft::testing {

class SlowComm : public Comm {
 public:
  // What all groups split from one world share.
  struct Delay {
    std::atomic<int64_t> ms{0};     // 0: none
    std::atomic<int64_t> calls{0};  // that were delayed
  };
  SlowComm(std::unique_ptr<Comm> inner, std::shared_ptr<Delay> delay)
      : inner_(std::move(inner)), delay_(std::move(delay)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const char* name() const override { return "slow"; }
  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override {
    slow().all_reduce(data, count, dtype, op);
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override {
    slow().reduce_scatter(in, out, count, dtype);
  }
  void all_gather(const void* in, void* out, int64_t bytes) override {
    slow().all_gather(in, out, bytes);
  }
  void all_to_all(const void* in, void* out, int64_t bytes) override {
    slow().all_to_all(in, out, bytes);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    slow().broadcast(data, bytes, root);
  }
  void send(const void* data, int64_t bytes, int to) override { slow().send(data, bytes, to); }
  void recv(void* data, int64_t bytes, int from) override { slow().recv(data, bytes, from); }
  void barrier() override { slow().barrier(); }
  std::unique_ptr<Comm> split(int color, int key) override {
    return std::make_unique<SlowComm>(inner_->split(color, key), delay_);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  bool is_aborted() const override { return inner_->is_aborted(); }
  void set_deadline_ms(int64_t deadline_ms) override { inner_->set_deadline_ms(deadline_ms); }
  int64_t deadline_ms() const override { return inner_->deadline_ms(); }
  void set_no_deadline(bool patient) override { inner_->set_no_deadline(patient); }
  void drop_deadline() override { inner_->drop_deadline(); }

 private:
  Comm& slow() {
    if (const int64_t ms = delay_->ms; ms > 0 && inner_->size() > 1) {
      delay_->calls += 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    }
    return *inner_;
  }
  std::unique_ptr<Comm> inner_;
  std::shared_ptr<Delay> delay_;
};

}  // namespace weft::testing
