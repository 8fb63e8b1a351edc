// comm/device_comm.cpp: who reads what from whose arena, between two meetings on the host.
#include "comm/device_comm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "comm/call.h"

namespace weft {
namespace {

class DeviceComm : public Comm {
 public:
  DeviceComm(std::unique_ptr<Comm> host, Device* device, const DeviceKernels& kernels,
             std::byte* arena, int64_t bytes)
      : host_(std::move(host)),
        device_(device),
        kernels_(kernels),
        context_{nullptr, nullptr, 0, device->stream()},
        arena_(arena),
        arena_bytes_(bytes) {
    ensure(size() <= kMaxReduced,
           fmt::format("{} ranks on one GPU; {} at most", size(), kMaxReduced));
    const Device::Exported mine = device->export_memory(arena);
    std::vector<Device::Exported> all(static_cast<size_t>(size()));
    host_->all_gather(&mine, all.data(), sizeof mine);
    for (int m = 0; m < size(); ++m) {
      arenas_.push_back(m == rank() ? arena : device->import_memory(all[static_cast<size_t>(m)]));
    }
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* name() const override { return "cuda_ipc"; }

  // Each rank sums its share of the elements, which no other rank reads, and writes it to all.
  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override {
    const int64_t element = dtype_bytes(dtype), bytes = count * element;
    note(CommOp::kAllReduce, bytes);
    if (!is_here(data)) return host_->all_reduce(data, count, dtype, op);
    if (size() == 1) return;
    const Meeting meeting = meet({CommOp::kAllReduce, dtype, op, 0, bytes, 0, 0}, data);
    const int64_t line = 64 / element, share = (count / size() + line) / line * line;
    const int64_t first = std::min(count, rank() * share), last = std::min(count, first + share);
    ReduceTreeArgs args{size(), size(), {}, {}, last - first, dtype, op == Reduce::kMax};
    for (int m = 0; m < size(); ++m) {
      args.in[m] = args.out[m] = meeting.data[static_cast<size_t>(m)] + first * element;
    }
    if (last > first) kernels_.reduce_tree(context_, args);
    part();
  }

  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override {
    const int64_t bytes = count * dtype_bytes(dtype);
    note(CommOp::kReduceScatter, size() * bytes);
    if (!is_here(in)) return host_->reduce_scatter(in, out, count, dtype);
    if (size() == 1) return device_->copy(out, in, bytes);
    const Meeting meeting = meet({CommOp::kReduceScatter, dtype, Reduce::kSum, 0, bytes, 0, 0}, in);
    ReduceTreeArgs args{size(), 1, {}, {out}, count, dtype, false};
    for (int m = 0; m < size(); ++m) {
      args.in[m] = meeting.data[static_cast<size_t>(m)] + rank() * bytes;
    }
    if (count > 0) kernels_.reduce_tree(context_, args);
    part();
  }

  void all_gather(const void* in, void* out, int64_t bytes) override {
    note(CommOp::kAllGather, bytes);
    if (!is_here(in)) return host_->all_gather(in, out, bytes);
    take(CommOp::kAllGather, in, out, bytes, 0);
  }

  void all_to_all(const void* in, void* out, int64_t bytes) override {
    note(CommOp::kAllToAll, size() * bytes);
    if (!is_here(in)) return host_->all_to_all(in, out, bytes);
    take(CommOp::kAllToAll, in, out, bytes, bytes);
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    note(CommOp::kBroadcast, bytes);
    if (!is_here(data)) return host_->broadcast(data, bytes, root);
    if (size() == 1) return;
    const Meeting meeting =
        meet({CommOp::kBroadcast, Dtype::kU8, Reduce::kSum, root, bytes, 0, 0}, data);
    if (rank() != root) device_->copy(data, meeting.data[static_cast<size_t>(root)], bytes);
    part();
  }

  void send(const void* data, int64_t bytes, int to) override { host_->send(data, bytes, to); }
  void recv(void* data, int64_t bytes, int from) override { host_->recv(data, bytes, from); }
  void barrier() override {
    device_->wait();
    host_->barrier();
  }
  std::unique_ptr<Comm> split(int color, int key) override {
    return make_device_comm(host_->split(color, key), device_, kernels_, arena_, arena_bytes_);
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  bool is_aborted() const override { return host_->is_aborted(); }
  void set_deadline_ms(int64_t ms) override { host_->set_deadline_ms(ms); }
  void set_patient(bool patient) override { host_->set_patient(patient); }

 private:
  // Where the members' data of a call lies.
  struct Meeting {
    std::array<std::byte*, kMaxReduced> data;
  };

  bool is_here(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    return at >= arena_ && at < arena_ + arena_bytes_;
  }

  void note(CommOp op, int64_t bytes) {
    counts_[static_cast<int>(op)].calls += 1;
    counts_[static_cast<int>(op)].bytes += bytes;
  }

  // What this rank wrote is there, and so is what the others did; their calls are the same.
  Meeting meet(CommCall call, const void* data) {
    device_->wait();
    call.location = static_cast<const std::byte*>(data) - arena_;
    call.number = ++number_;
    std::array<CommCall, kMaxReduced> all;
    host_->all_gather(&call, all.data(), sizeof call);
    Meeting meeting{};
    for (int m = 0; m < size(); ++m) {
      const CommCall& other = all[static_cast<size_t>(m)];
      if (!is_same(all[0], other)) {
        const std::string message =
            fmt::format("ranks 0 and {} of a group made different calls at number {}: {}, and {}",
                        m, call.number, describe(all[0]), describe(other));
        host_->abort(message);
        throw BugError(message);
      }
      meeting.data[static_cast<size_t>(m)] = arenas_[static_cast<size_t>(m)] + other.location;
    }
    return meeting;
  }

  // All have read: buffers may be used again.
  void part() {
    device_->wait();
    host_->barrier();
  }

  // Part m of out comes from member m: its data, from rank * stride on.
  void take(CommOp op, const void* in, void* out, int64_t bytes, int64_t stride) {
    if (size() == 1) return device_->copy(out, in, bytes);
    const Meeting meeting = meet({op, Dtype::kU8, Reduce::kSum, 0, bytes, 0, 0}, in);
    for (int i = 0; i < size(); ++i) {
      const int m = (rank() + i) % size();
      device_->copy(static_cast<std::byte*>(out) + m * bytes,
                    meeting.data[static_cast<size_t>(m)] + rank() * stride, bytes);
    }
    part();
  }

  std::unique_ptr<Comm> host_;
  Device* device_;
  const DeviceKernels& kernels_;
  Context context_;
  std::byte* arena_;
  int64_t arena_bytes_;
  std::vector<std::byte*> arenas_;  // of the members, as this process sees them
  uint32_t number_ = 0;
};

}  // namespace

std::unique_ptr<Comm> make_device_comm(std::unique_ptr<Comm> host, Device* device,
                                       const DeviceKernels& kernels, std::byte* arena,
                                       int64_t arena_bytes) {
  return std::make_unique<DeviceComm>(std::move(host), device, kernels, arena, arena_bytes);
}

}  // namespace weft
