// comm/solo.cpp: a group of one, in which every call is at most a copy.
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "comm/comm.h"
#include "net/deadline.h"

namespace weft {
namespace {

class SoloComm : public Comm {
 public:
  // Shared by all groups split from the same world.
  struct World {
    std::mutex mutex;
    bool is_aborted = false;
    std::string reason;
  };
  explicit SoloComm(std::shared_ptr<World> world) : world_(std::move(world)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* name() const override { return "solo"; }

  void all_reduce(void*, int64_t count, Dtype dtype, Reduce) override {
    begin(CommOp::kAllReduce, count * dtype_bytes(dtype));
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override {
    move(CommOp::kReduceScatter, in, out, count * dtype_bytes(dtype));
  }
  void all_gather(const void* in, void* out, int64_t bytes) override {
    move(CommOp::kAllGather, in, out, bytes);
  }
  void all_to_all(const void* in, void* out, int64_t bytes) override {
    move(CommOp::kAllToAll, in, out, bytes);
  }
  void broadcast(void*, int64_t bytes, int root) override {
    if (root != 0) throw BugError("broadcast from a rank outside the group");
    begin(CommOp::kBroadcast, bytes);
  }
  void send(const void*, int64_t, int) override { throw BugError("send in a group of one"); }
  void recv(void*, int64_t, int) override { throw BugError("recv in a group of one"); }
  void barrier() override { begin(CommOp::kBarrier, 0); }
  std::unique_ptr<Comm> split(int, int) override { return std::make_unique<SoloComm>(world_); }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(world_->mutex);
    if (!world_->is_aborted) world_->reason = reason;
    world_->is_aborted = true;
  }
  bool is_aborted() const override {
    const std::lock_guard lock(world_->mutex);
    return world_->is_aborted;
  }
  // Nothing waits here.
  void set_deadline_ms(int64_t) override {}
  int64_t deadline_ms() const override { return kDeadlineMs; }
  void set_no_deadline(bool) override {}
  void drop_deadline() override {}

 private:
  void begin(CommOp op, int64_t bytes) {
    const std::lock_guard lock(world_->mutex);
    if (world_->is_aborted) {
      throw PeerError(fmt::format("{} aborted: {}", comm_op_name(op), world_->reason));
    }
    counts_[static_cast<int>(op)].calls += 1;
    counts_[static_cast<int>(op)].bytes += bytes;
  }
  void move(CommOp op, const void* in, void* out, int64_t bytes) {
    begin(op, bytes);
    if (in != out && bytes > 0) std::memcpy(out, in, static_cast<size_t>(bytes));
  }

  std::shared_ptr<World> world_;
};

}  // namespace

std::unique_ptr<Comm> make_solo_comm() {
  return std::make_unique<SoloComm>(std::make_shared<SoloComm::World>());
}

}  // namespace weft
