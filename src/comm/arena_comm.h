// comm/arena_comm.h: the common part of groups of ranks on GPUs.
//
// Data inside a rank's arena is device memory and moved by the backend; other data is host memory
// and goes through the underlying host group, which also carries the calls that ranks are about to
// make, so that these are compared as on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "comm/call.h"
#include "comm/comm.h"
#include "tensor/device.h"

namespace weft {

class ArenaComm : public Comm {
 public:
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) final;
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) final;
  void all_gather(const void* in, void* out, int64_t bytes) final;
  void all_to_all(const void* in, void* out, int64_t bytes) final;
  void broadcast(void* data, int64_t bytes, int root) final;
  void send(const void* data, int64_t bytes, int to) final;
  void recv(void* data, int64_t bytes, int from) final;
  void barrier() final;  // after all that this rank has queued

  void abort(const std::string& reason) override { host_->abort(reason); }
  void abort_wait(const std::string& reason) override { host_->abort_wait(reason); }
  bool is_aborted() const override { return host_->is_aborted(); }
  void set_deadline_ms(int64_t ms) override { host_->set_deadline_ms(ms); }
  int64_t deadline_ms() const override { return host_->deadline_ms(); }
  void set_no_deadline(bool patient) override { host_->set_no_deadline(patient); }
  void drop_deadline() override { host_->drop_deadline(); }

 protected:
  ArenaComm(std::shared_ptr<Comm> host, Device* device, std::byte* arena, int64_t arena_bytes);

  // The same for data in the arena.
  virtual void sum_here(void* data, int64_t count, Dtype dtype, Reduce op) = 0;
  virtual void scatter_here(const void* in, void* out, int64_t count, Dtype dtype) = 0;
  virtual void gather_here(const void* in, void* out, int64_t bytes) = 0;
  virtual void exchange_here(const void* in, void* out, int64_t bytes) = 0;
  virtual void broadcast_here(void* data, int64_t bytes, int root) = 0;
  virtual void send_here(const void* data, int64_t bytes, int to) = 0;
  virtual void recv_here(void* data, int64_t bytes, int from) = 0;

  // Before the others learn of a call: memory that they will read must be complete.
  virtual void get_ready() {}
  // Waits for the others' calls, on the host: BugError where they differ. They are then in calls_,
  // each with the data's offset in its arena.
  void compare(CommCall call, const void* data);
  bool is_here(const void* data) const;
  int64_t offset(const void* data) const { return static_cast<const std::byte*>(data) - arena_; }
  void restart_numbers() { number_ = 0; }  // replacements begin there

  std::shared_ptr<Comm> host_;
  Device* device_;
  std::byte* arena_;
  int64_t arena_bytes_;
  std::vector<CommCall> calls_;

 private:
  void note(CommOp op, int64_t bytes);

  uint32_t number_ = 0;
};

}  // namespace weft
