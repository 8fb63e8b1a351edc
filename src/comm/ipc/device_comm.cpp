// comm/ipc/device_comm.cpp: who reads what from which arena, between two barriers on the host.
#include "comm/ipc/device_comm.h"

#include <algorithm>

#include "base/error.h"
#include "comm/arena_comm.h"

namespace weft {
namespace {

// The others' arenas, mapped here while it lives.
class Mappings {
 public:
  explicit Mappings(Device* device) : device_(device) {}
  ~Mappings() { drop(); }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;
  std::byte* open(const Device::Exported& exported) {
    std::byte* here = device_->import_memory(exported);
    open_.push_back(exported);
    return here;
  }
  void drop() {
    for (const Device::Exported& e : open_) device_->drop_memory(e);
    open_.clear();
  }

 private:
  Device* device_;
  std::vector<Device::Exported> open_;
};

class DeviceComm : public ArenaComm {
 public:
  DeviceComm(std::shared_ptr<Comm> host, Device* device, const DeviceKernels& kernels,
             std::byte* arena, int64_t bytes)
      : ArenaComm(std::move(host), device, arena, bytes),
        kernels_(kernels),
        context_{nullptr, nullptr, 0, device->stream()},
        mappings_(device) {
    ensure(size() <= kMaxReduced,
           fmt::format("{} ranks on one GPU; at most {} are supported", size(), kMaxReduced));
    map_arenas();
  }

  const char* name() const override { return "cuda_ipc"; }

  std::unique_ptr<Comm> split(int color, int key) override {
    return make_device_comm(host_->split(color, key), device_, kernels_, arena_, arena_bytes_);
  }

  // What is queued waits for no other rank, but may still read the others' arenas, also that of a
  // dead one: the driver keeps it until it is unmapped here.
  void leave() override {
    device_->wait();
    arenas_.clear();
    mappings_.drop();
  }
  void rejoin() override {
    restart_numbers();
    map_arenas();
  }

 private:
  void map_arenas() {
    const Device::Exported mine = device_->export_memory(arena_);
    std::vector<Device::Exported> all(static_cast<size_t>(size()));
    host_->all_gather(&mine, all.data(), sizeof mine);
    for (int m = 0; m < size(); ++m) {
      arenas_.push_back(m == rank() ? arena_ : mappings_.open(all[static_cast<size_t>(m)]));
    }
  }

  // Each rank sums its share of the elements, which no other rank reads, and writes it to all.
  void sum_here(void*, int64_t count, Dtype dtype, Reduce op) override {
    if (size() == 1) return;
    const int64_t element = dtype_bytes(dtype);
    const int64_t line = 64 / element, share = (count / size() + line) / line * line;
    const int64_t first = std::min(count, rank() * share), last = std::min(count, first + share);
    ReduceTreeArgs args{size(), size(), {}, {}, last - first, dtype, op == Reduce::kMax};
    for (int m = 0; m < size(); ++m) args.in[m] = args.out[m] = data_of(m) + first * element;
    if (last > first) kernels_.reduce_tree(context_, args);
    part();
  }

  void scatter_here(const void* in, void* out, int64_t count, Dtype dtype) override {
    const int64_t bytes = count * dtype_bytes(dtype);
    if (size() == 1) return copy_alone(in, out, bytes);
    ReduceTreeArgs args{size(), 1, {}, {out}, count, dtype, false};
    for (int m = 0; m < size(); ++m) args.in[m] = data_of(m) + rank() * bytes;
    kernels_.reduce_tree(context_, args);
    part();
  }

  void gather_here(const void* in, void* out, int64_t bytes) override { take(in, out, bytes, 0); }
  void exchange_here(const void* in, void* out, int64_t bytes) override {
    take(in, out, bytes, bytes);
  }

  void broadcast_here(void* data, int64_t bytes, int root) override {
    if (size() == 1) return;
    if (rank() != root) device_->copy(data, data_of(root), bytes);
    part();
  }

  // The receiver reads the sender's data in place, and signals when it is done.
  void send_here(const void* data, int64_t bytes, int to) override {
    device_->wait();
    const int64_t sent[2] = {offset(data), bytes};
    host_->send(sent, sizeof sent, to);
    char has_read = 0;
    host_->recv(&has_read, 1, to);
  }
  void recv_here(void* data, int64_t bytes, int from) override {
    int64_t sent[2] = {};
    host_->recv(sent, sizeof sent, from);
    if (sent[1] != bytes) {
      const std::string message = fmt::format(
          "member {} sends {} bytes to member {}, which expects {}", from, sent[1], rank(), bytes);
      host_->abort(message);
      throw BugError(message);
    }
    device_->copy(data, arenas_[static_cast<size_t>(from)] + sent[0], bytes);
    device_->wait();
    const char has_read = 1;
    host_->send(&has_read, 1, from);
  }

  std::byte* data_of(int member) const {
    const auto m = static_cast<size_t>(member);
    return arenas_[m] + calls_[m].location;
  }

  void get_ready() override {
    if (size() > 1) device_->wait();
  }
  // All have read: buffers may be used again.
  void part() {
    device_->wait();
    host_->barrier();
  }

  void copy_alone(const void* in, void* out, int64_t bytes) {
    device_->copy(out, in, bytes);
    device_->wait();
  }

  // Part m of out comes from member m: its data, from rank * stride on.
  void take(const void* in, void* out, int64_t bytes, int64_t stride) {
    if (size() == 1) return copy_alone(in, out, bytes);
    for (int i = 0; i < size(); ++i) {
      const int m = (rank() + i) % size();
      device_->copy(static_cast<std::byte*>(out) + m * bytes, data_of(m) + rank() * stride, bytes);
    }
    part();
  }

  const DeviceKernels& kernels_;
  Context context_;
  Mappings mappings_;
  std::vector<std::byte*> arenas_;  // of the members, as this process sees them
};

}  // namespace

std::unique_ptr<Comm> make_device_comm(std::shared_ptr<Comm> host, Device* device,
                                       const DeviceKernels& kernels, std::byte* arena,
                                       int64_t arena_bytes) {
  return std::make_unique<DeviceComm>(std::move(host), device, kernels, arena, arena_bytes);
}

}  // namespace weft
